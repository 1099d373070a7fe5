package afpacket

import (
	"cmp"
	"errors"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Results of a tc program (linux/pkt_cls.h).
const (
	tcPass = 0
	tcDrop = 2
)

// silence keeps the kernel's stack from handling the frames that the port receives. In mode Host,
// the kernel still handles IGMP and MLD. A packet socket gets only a copy of each frame. Without
// silence the kernel would answer each RoCEv2 packet with ICMP port unreachable. The tc ingress
// hook runs after packet sockets, so packets that it drops still reach the port and every capture.
func (p *Port) silence() {
	p.info.Silencer = "none"
	if p.cfg.Mode == Tap || p.cfg.Unaddressed {
		return
	}
	if !p.cfg.NoTCX {
		stop, err := attachTCX(p.info.Ifindex, dropProgram(p.cfg.Mode, p.cfg.Also))
		if err == nil {
			p.silencer, p.info.Silencer = stop, "tcx"
			return
		}
		if errors.Is(err, fs.ErrPermission) { // the error of the library guesses at a limit
			err = unix.EPERM
		}
		p.note("no tc program (Linux 6.6 and CAP_BPF): %v", err)
	}
	if p.cfg.Mode == Switch {
		p.note("the kernel of this namespace also sees the frames")
		return
	}
	stop, err := bindSilent(p.cfg.Also)
	if err != nil {
		p.note("the kernel answers RoCEv2 with ICMP port unreachable: %v", err)
		return
	}
	p.silencer, p.info.Silencer = stop, "socket"
}

func attachTCX(ifindex int, ins asm.Instructions) (stop func(), err error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "rdmalab_silence", Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: ins})
	if err != nil {
		return nil, err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, errors.Join(err, prog.Close())
	}
	return func() {
		_ = l.Close() // the kernel detaches the program when its last descriptor is closed, even if Close fails
		_ = prog.Close()
	}, nil
}

// dropProgram returns the program that drops frames in front of the kernel's stack: all of them in
// mode Switch; in mode Host, UDP to port 4791 and, if `also` is not 0, UDP to the port with this
// number. The kernel has already removed the VLAN tag.
func dropProgram(m Mode, also uint16) asm.Instructions {
	if m == Switch {
		return asm.Instructions{asm.Mov.Imm(asm.R0, tcDrop), asm.Return()}
	}
	also = cmp.Or(also, wire.UDPPort)
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs and LoadInd expect the context in R6
		asm.LoadAbs(offType, asm.Half),
		asm.JEq.Imm(asm.R0, int32(wire.EtherTypeIPv6), "v6"),
		asm.JNE.Imm(asm.R0, int32(wire.EtherTypeIPv4), "pass"),
		asm.LoadAbs(offIPv4+9, asm.Byte),
		asm.JNE.Imm(asm.R0, protoUDP, "pass"),
		asm.LoadAbs(offIPv4+6, asm.Half),
		asm.And.Imm(asm.R0, fragOffset),
		asm.JNE.Imm(asm.R0, 0, "pass"),
		asm.LoadAbs(offIPv4, asm.Byte),
		asm.And.Imm(asm.R0, 0xf),
		asm.LSh.Imm(asm.R0, 2),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadInd(asm.R0, asm.R7, offIPv4+2, asm.Half),
		asm.Ja.Label("port"),
		asm.LoadAbs(offIPv4+6, asm.Byte).WithSymbol("v6"),
		asm.JNE.Imm(asm.R0, protoUDP, "pass"),
		asm.LoadAbs(offIPv4+40+2, asm.Half),
		asm.JEq.Imm(asm.R0, wire.UDPPort, "drop").WithSymbol("port"),
		asm.JNE.Imm(asm.R0, int32(also), "pass"),
		asm.Mov.Imm(asm.R0, tcDrop).WithSymbol("drop"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, tcPass).WithSymbol("pass"),
		asm.Return(),
	}
}

// bindSilent binds UDP port 4791 to sockets whose filter drops everything. The kernel then has a
// receiver for RoCEv2 packets and sends no ICMP. If another process has a socket on this port, that
// has the same effect. If `also` is not 0, bindSilent does the same for the UDP port with this
// number.
func bindSilent(also uint16) (stop func(), err error) {
	var fds []int
	stop = func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // an error of Close has no effect on a UDP socket
		}
	}
	addrs := []unix.Sockaddr{&unix.SockaddrInet4{Port: wire.UDPPort}, &unix.SockaddrInet6{Port: wire.UDPPort}}
	if also != 0 {
		addrs = append(addrs, &unix.SockaddrInet4{Port: int(also)}, &unix.SockaddrInet6{Port: int(also)})
	}
	for _, addr := range addrs {
		family := unix.AF_INET
		if _, v6 := addr.(*unix.SockaddrInet6); v6 {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue // without IPv6 the kernel sends no ICMP over it
		}
		if err != nil {
			stop()
			return nil, err
		}
		fds = append(fds, fd)
		if family == unix.AF_INET6 {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1) // if this fails, bind below fails, too
		}
		if err := attach(fd, []bpf.Instruction{bpf.RetConstant{Val: 0}}); err != nil {
			stop()
			return nil, err
		}
		if err := unix.Bind(fd, addr); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			stop()
			return nil, err
		}
	}
	return stop, nil
}
