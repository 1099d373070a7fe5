// Package swordbox is the switch program called "swordbox": it tracks reliable connections, and
// hands the packets of those that rules select to the handler of the rule's action and mode
// (swordbox/handler). Connections are tracked by swordbox/conntrack, rules are read and looked up
// by swordbox/rules, and the switch's connections to memory servers are made by
// swordbox/switchconn.
package swordbox
