"""One module for each study of `certirl reproduce`; `certirl.paper.study` says what such a module has."""
