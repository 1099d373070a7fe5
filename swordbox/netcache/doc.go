// Package netcache answers GETs in the place of a key-value server, with values that the switch keeps in the memory of
// servers. It is the handler of rules of action cache: NetCache (SOSP 2017) whose values do not fit the switch, which
// "Generic External Memory for Switch Data Planes" (HotNets 2018) names as a use of its memory.
//
// The key-value server speaks memcached's text protocol over UDP, and is not changed. The switch sees all datagrams to
// and from its port. It counts the GETs of each key (a count-min sketch), and gives a hot one a place in its index, and a
// cell in a server's memory. Then it sends one GET of a client as a probe, writes the value that comes back to the cell,
// and answers later GETs of the key after a READ of the cell. The state diagram of a place is in state.go.
//
// # Why no client gets an older value
//
// What follows is about one key. The server executes requests one after the other; the execution of a request is its
// place in an order. The answer to a request is seen by a client only after it has passed the switch. The switch answers
// a GET with value v while the place is Warm:
//
//   - v is what the probe has found. The probe was executed after it was sent, because its number belongs to no other
//     request. So it stands behind each request whose answer had passed the switch before.
//   - Since the probe was sent, no answer has passed that shows another value, and none to a write. An answer that the
//     switch cannot assign to a request, or cannot read, counts as both, for all keys.
//
// So the last request whose answer has passed the switch (the probe, if there is none behind it) is a GET that has found
// v. The switch's answer stands directly behind it: the value is v there, no request that had ended before stands behind
// it, and none that begins later stands before it. Hence all answers together are linearizable for each key, whatever
// datagrams are lost, come twice or come in another order, and whatever the server or the switch forget in a crash. A
// write that was sent and not answered does not matter for that. It makes the place Cold all the same, because its answer
// may be lost.
//
// The switch compares values by a digest of 64 bits, so that a server needs no versions. The digest is not made against
// people who look for two values with the same one. The cell that comes back must have the number of the probe and the
// digest, so a memory server that has lost its memory, or a WRITE that was lost, costs a GET at the key-value server and
// nothing else.
//
// To forget all values costs the same for any number of them: each has the number of its probe, and only those with a
// higher number than the newest probe had then are values still. A READ that is in flight meanwhile finds its place
// without a value, or with one of another probe.
//
// While a probe is with the server, and its value on the way to the memory, other GETs of the key wait in the switch: at
// the server they would be what the next probe waits for. One that goes on is treated as one that arrives then, so what
// is said above holds for it.
//
// A GET waits for 2 ms at most. The number of a request that waits for longer may be that of another
// request of its client by then.
//
// # Limits
//
// A write that does not pass the switch is not seen: one by a program on the server's own host, to another port, or to
// an address of another NIC of the server's host; have the server listen at the address of the first NIC alone. A
// value answers GETs for at most the time of the key age, so it is hidden for no longer; the same holds for items that
// expire. Packets of TCP to and from the server's port are dropped, and so are those to it that are no
// whole UDP packet, such as fragments, and those with extension headers of IPv6. GETs in a VLAN are not answered,
// because the server's address may be that of another host there, nor are those to a group of stations. The switch has
// 48 bytes for each value, of which a chip would need 43. A flush_all with a delay hides old values for at most age. Who sends with the address, port and number of another client can make an answer count for
// another key. Only get of one key is answered. A client that reuses
// a number of a request while an answer to its former request may still arrive can take the wrong answer, with or without
// the switch. Probes leave under ports from 61000 on, which Linux gives to no program by itself; a client must not use
// them. A datagram with a wrong checksum is left alone; one without a checksum is trusted. IPv6 packets with extension
// headers are not answered.
//
//	state.go    the state diagram of a key
//	index.go    keys and their states; which keys are kept
//	waits.go    GETs that wait
//	held.go     those that wait until their value is known
//	asked.go    requests that are with the server, and probes
//	message.go  memcached's protocol over UDP
//	packet.go   frames
//	cell.go     the bytes of a value in memory
//	cache.go    the cache of a rule
//	rule.go     keys of rules
//	machine.go  the handler: rules, connections
//	channel.go  the connection to a memory server
//	info.go     what an operator sees
package netcache
