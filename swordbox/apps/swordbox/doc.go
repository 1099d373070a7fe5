// Package swordbox is the switch program called "swordbox". It tracks reliable connections. If a
// rule selects a connection, the program hands its packets to the handler of the rule's action and
// mode (swordbox/handler). Package conntrack tracks connections, rules reads and looks up rules,
// and switchconn makes the switch's connections to memory servers.
package swordbox
