// Package socket lets programs outside the daemon use the 1RMA NIC of a host. The daemon listens on
// a unix socket (Server). A program opens it (Open), registers memory that it shares with the
// daemon, borrows memory of peers or uses what they grant, and moves bytes by Read and Write:
//
//	c, err := socket.Open(ctx, "")                     // on a host: the path is in RDMALAB_ONERMA
//	local, err := c.Register(ctx, 1<<20, verbs.LocalWrite)
//	peer, err := c.Borrow(ctx, addr, 1<<20)            // memory of the host with address addr
//	copy(local.Bytes(), "hello")
//	_, err = c.Write(ctx, socket.Transfer{Remote: peer, Length: 5, Local: local})
//
// A message is one packet of the socket with a JSON object, at most 4096 bytes. The answer to a
// request for memory has a descriptor of a sealed memory file, which both sides map. Nothing of a
// program outlives its connection: the daemon ends its transfers, regions and loans, and then
// unmaps its memory.
package socket
