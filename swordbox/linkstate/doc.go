// Package linkstate tells the switches of a rack which trunks between them work, and which ports lead
// to each switch. It is pure: a Machine gets the messages of its neighbours, the carriers of its
// trunks and the time, and returns messages.
//
// Each switch says which of its own trunks work: those that have a carrier and on which it has heard
// its neighbour within Silence. A message has what its sender knows of all switches, each with a
// number that grows with every change; the greater number wins. A trunk counts as up while both of
// its switches say that it works. A switch that has crashed or hangs says nothing, so its neighbours
// take its trunks away.
//
// Switches send a message every Interval, and at once when what they know has changed. A message is an
// Ethernet frame that no switch forwards:
//
//	|   0 to 5    |   6 to 11   | 12, 13 |  14   |   15    |  16  |   17    | 18 ...              |
//	| destination |   source    | type   | 'L'   | version | from | records | records             |
//
// A record is a switch (1 byte), its number (8 bytes), and one bit for each trunk of the rack, of which
// only those of the switch count.
//
// From the trunks that are up, Routes finds for each switch the trunks on the shortest paths, and one
// tree for frames that are flooded. All switches make the same tree from the same trunks. While they
// do not know the same, a flooded frame may be lost or, for at most a few milliseconds, come twice.
package linkstate
