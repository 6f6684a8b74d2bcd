"""One file per part of the page; each turns methods and runs into markup."""
