"""How requests are carried out."""
