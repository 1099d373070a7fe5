// Package host is the 1RMA NIC of a host for programs that block: it makes the sans-I/O machines of
// onerma/nic and onerma/executor safe for goroutines, gives each incarnation of the NIC a number
// that no earlier one had, and hands out memory to peers.
//
// A NIC is the second NIC of a softrnic/device.Device, which owns the port and the clock. A program
// opens a Process, registers memory, and moves bytes by Read, Write, or Start and Wait:
//
//	p, err := n.Open(host.ProcessConfig{})
//	loan, err := host.Borrow(ctx, p, addr, 1<<20)     // memory of a peer, over TCP
//	local, err := p.Register(buf, verbs.LocalWrite)
//	res, err := p.Read(ctx, host.Transfer{Remote: loan.Remote, Length: 4096, Local: local})
//
// Keys travel over the TCP of the hosts in clear text: the paper leaves this channel to programs,
// which would encrypt it.
package host
