// Package lookuptable looks up the IP packets that a host sends in a table in the memory of
// servers, and does with each packet what its entry says. It is the hardened handler of rules of
// action lookup: the lookup table of "Generic External Memory for Switch Data Planes" (HotNets
// 2018), with slots like those of TEA (SIGCOMM 2020). Package published/lookuptable does it as the
// HotNets paper describes it.
//
// Contract. The key of a frame is its flow or its destination. If the cache of the switch does not
// have the key, the frame bounces through a server's memory: the switch writes it to a cell, reads
// the slots in which the entry may be, and reads the cell. The switch keeps the key of each frame
// in flight, not the frame. At every moment
//
//	Frames = Cached + Hits + Misses + in flight + Torn + Unfit + Lost + Full + Blocked + Long
//
// where all but in flight are fields of Stats. Cells are taken in the order of arrival (package
// framering), and the entries of a key are in one server, so frames of a flow keep their order. No
// frame gets the bytes of another one. While frames with a key are in flight, the switch does not
// use the cache for this key: otherwise the next frame would overtake them. A frame whose cell did
// not come back is Lost: if the WRITE of a cell is lost on the link, the requester has no copy of
// the frame, and retransmits a WRITE of no bytes instead. Frames that find no free cell (Full), or
// no connection or room in flight (Blocked), are dropped.
//
// With the key packets=recirculate, the frame waits in the switch for its entry, as if it passed the
// switch again and again, and the switch only reads the slots.
//
// The control plane writes entries on the same connection, so a lookup sees an entry before or
// after a change. The cache forgets an entry when its change is sent. If a server lends other
// memory than before, because its service was restarted, the cache forgets all entries of that
// server. Another writer may change a slot while the switch reads it: the slot then shows two
// versions, the lookup is Torn, and the frame is dropped. Changes by other writers do not reach the
// cache.
//
// An ICMP error quotes a packet. The switch looks the error up as a packet in the opposite
// direction of the quoted one. So the entry that rewrites the answers of a flow also rewrites ICMP
// errors about the flow, and the packet that they quote.
//
// With match=ternary, an entry compares the bits of a frame's flow under one of the rule's masks
// (tuple space search). The number of the mask is a part of the entry's key, so each mask has a table
// of its own in the same slots. For a frame the switch reads the slots under all masks, at once, and
// the first mask that has an entry counts. The cache has flows, and forgets all of them when an entry
// changes. All entries and cells are in one server.
//
// With the key vip, the table has the connections to a virtual address (SilkRoad, SIGCOMM 2017): the
// first frame of a connection chooses a host of the pool and waits until the server has the entry, so
// a connection that a host knows has an entry. A frame whose entry names a host that is neither in the
// pool nor drains counts as one without an entry. A TCP segment without an entry that is no SYN is
// dropped. Frames that wait count as in flight.
//
// Limits. The addresses of RoCEv2 packets are not rewritten, because the ICRC covers them: an entry
// that would do so is refused if its key names RoCEv2, and otherwise the packets are dropped
// (Unfit). In a packet of several IP fragments, only the first has ports. A crash of the switch
// loses the frames in flight; the table is in the servers' memory, and stays.
//
//	rule.go     keys of rules, and where slots and cells are
//	hash.go     hashes and keys by their names, also those of other modules
//	key.go      the key of a frame, and its headers
//	icmp.go     errors about packets
//	action.go   what an entry does to a frame, and its checksums
//	text.go     entries as text
//	slot.go     the bytes of an entry, and the search for a key
//	mask.go     masks of match=ternary
//	virtual.go  keys of rules with a virtual address
//	balance.go  connections to a virtual address
//	place.go    which slots change when an entry is added
//	cache.go    entries that the switch keeps
//	table.go    what the switch does with a frame, by an entry in the cache or in memory
//	server.go   lookups in one server: frames in flight and their keys
//	circle.go   frames that wait in the switch instead
//	channel.go  the connection to a server
//	writer.go   changes of entries, and reading of the table
//	machine.go  the handler: rules, connections
//	info.go     what an operator sees
package lookuptable
