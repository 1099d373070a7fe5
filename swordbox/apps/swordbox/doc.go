// Package swordbox is the switch program called "swordbox". It tracks reliable connections. Rules
// select requests to memory servers. The program hands the packets of the connections to these
// servers to handlers (package handler). A handler carries out the rules of some actions in one
// mode: published (as in the paper) or hardened (with the paper's holes closed). Package conntrack
// tracks the connections. Package rules parses the rules, and finds the rule of a request. Package
// switchconn makes the switch's connections to memory servers.
package swordbox
