"""Tables, pictures and files for people; everything here draws and nothing computes."""
