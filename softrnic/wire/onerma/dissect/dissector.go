package dissect

import _ "embed" // for Dissector

// Dissector is a program in Lua with which Wireshark and tshark show the messages of 1RMA. The
// fields of the messages have names that begin with "onerma.".
//
//go:embed onerma.lua
var Dissector string
