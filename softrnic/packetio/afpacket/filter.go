package afpacket

import (
	"cmp"
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Offsets in a frame without VLAN tag, and values of its fields. fragOffset selects the fragment
// offset of IPv4. acceptAll is the result by which a filter accepts a frame: the number of bytes
// that the socket gets, here more than any frame has.
const (
	offType       = 12
	offIPv4       = 14
	protoUDP      = 17
	protoIGMP     = 2
	protoHopByHop = 0
	acceptAll     = 1 << 18
	fragOffset    = 0x1fff
)

// roceFilter returns the classic BPF program of mode Host. It takes RoCEv2: UDP to port 4791 over
// IPv4 or IPv6, behind at most one VLAN tag, except IPv4 fragments behind the first, which have no
// UDP header. It also takes IGMP, and frames with a hop-by-hop header, because MLD has one: the NIC
// answers IGMP and MLD queries. The kernel removes the outer tag before the filter sees the frame.
// If `also` is not 0, it takes datagrams to the UDP port with this number, too.
func roceFilter(also uint16) []bpf.Instruction {
	var prog []bpf.Instruction
	prog = append(prog, bpf.LoadAbsolute{Off: offType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tpid8021Q, SkipTrue: uint8(len(roceIP(0, also)) + 1)})
	prog = append(prog, roceIP(0, also)...)
	prog = append(prog, bpf.RetConstant{Val: 0}, bpf.LoadAbsolute{Off: offType + tagLen, Size: 2})
	prog = append(prog, roceIP(tagLen, also)...)
	return append(prog, bpf.RetConstant{Val: 0})
}

// roceIP returns instructions that test a frame. The frame's EtherType is in the accumulator, and
// its VLAN tag is shift bytes long (0 if there is none). The instructions accept the frame if it is
// for the NIC; otherwise the instruction behind them is executed next.
func roceIP(shift uint32, also uint16) []bpf.Instruction {
	also = cmp.Or(also, wire.UDPPort)
	ip := uint32(offIPv4) + shift
	return []bpf.Instruction{
		/* 0 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(wire.EtherTypeIPv6), SkipTrue: 9},
		/* 1 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(wire.EtherTypeIPv4), SkipTrue: 15},
		/* 2 */ bpf.LoadAbsolute{Off: ip + 9, Size: 1},
		/* 3 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoIGMP, SkipTrue: 12},
		/* 4 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protoUDP, SkipTrue: 12},
		/* 5 */ bpf.LoadAbsolute{Off: ip + 6, Size: 2},
		/* 6 */ bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: fragOffset, SkipTrue: 10},
		/* 7 */ bpf.LoadMemShift{Off: ip},
		/* 8 */ bpf.LoadIndirect{Off: ip + 2, Size: 2},
		/* 9 */ bpf.Jump{Skip: 4},
		/* 10 */ bpf.LoadAbsolute{Off: ip + 6, Size: 1},
		/* 11 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoHopByHop, SkipTrue: 4},
		/* 12 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protoUDP, SkipTrue: 4},
		/* 13 */ bpf.LoadAbsolute{Off: ip + 40 + 2, Size: 2},
		/* 14 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: wire.UDPPort, SkipTrue: 1},
		/* 15 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(also), SkipTrue: 1},
		/* 16 */ bpf.RetConstant{Val: acceptAll},
	}
}

// typeFilter returns the program that takes frames of one EtherType.
func typeFilter(etherType uint16) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(etherType), SkipFalse: 1},
		bpf.RetConstant{Val: acceptAll},
		bpf.RetConstant{Val: 0},
	}
}

// hostFilter returns the program of mode Host, with a test for pause frames in front if the port
// receives them.
func (p *Port) hostFilter() []bpf.Instruction {
	prog := roceFilter(p.cfg.Also)
	if p.cfg.Pauses {
		pauses := typeFilter(wire.EtherTypeMACControl)
		prog = append(pauses[:len(pauses)-1], prog...)
	}
	return prog
}

// attachFilter makes the kernel drop the frames that the port's mode does not take.
func (p *Port) attachFilter() error {
	switch {
	case p.cfg.Mode == Host:
		return attach(p.fd, p.hostFilter())
	case p.cfg.EtherType != 0:
		return attach(p.fd, typeFilter(p.cfg.EtherType))
	}
	return nil
}

func attach(fd int, prog []bpf.Instruction) error {
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return fmt.Errorf("assemble socket filter: %w", err)
	}
	ins := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		ins[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(ins)), Filter: unsafe.SliceData(ins)}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fprog); err != nil {
		return fmt.Errorf("attach socket filter: %w", err)
	}
	return nil
}
