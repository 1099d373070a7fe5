package layers

import _ "embed" // for Dissector

// Dissector is a program in Lua by which Wireshark and tshark show the messages of 1RMA. It names
// their fields onerma.*.
//
//go:embed onerma.lua
var Dissector string
