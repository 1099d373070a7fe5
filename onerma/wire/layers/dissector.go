package layers

import _ "embed" // for Dissector

// Dissector is a program in Lua by which Wireshark and tshark show messages, their fields named onerma.*.
//
//go:embed onerma.lua
var Dissector string
