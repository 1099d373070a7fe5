// Package lookuptable looks up packets in a table in the memory of servers as "Generic External
// Memory for Switch Data Planes" (HotNets 2018) describes it. It has the paper's holes, listed
// below, and so shows which cases package swordbox/lookuptable handles. This package uses the
// rules, the keys, the actions and the cache from that package.
//
// A slot of the table is followed by a cell for one packet. A packet whose key has the slot is written
// to the cell, and at once one READ brings the slot and the cell back. At most as many READs are in
// flight as the key 'depth' of the rule says; further packets wait for theirs in their cells.
//
//   - A slot has one cell. If a second packet with the slot is written while the first one waits for
//     its READ, the first one is lost, and the second one leaves twice.
//   - The key is not compared. Keys with the same slot get each other's action; the later one of two
//     entries overwrites the earlier one.
//   - Nothing is retransmitted, and ACKs and NAKs are ignored. If a WRITE or a READ is lost, or
//     overtaken, the server answers no later request: no packet comes back. A lost response to a READ
//     takes away one place in flight for ever; when none is left, no READ is sent.
//   - Any READ response counts as the answer to the oldest READ in flight. A response that arrives twice lets a
//     packet leave twice.
//   - A packet whose entry is in the switch's cache overtakes the packets of its flow that wait for
//     their READ.
//   - Versions are not compared: an entry that was read while another writer wrote it is used.
package lookuptable
