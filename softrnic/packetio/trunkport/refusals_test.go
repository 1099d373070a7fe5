package trunkport

import (
	"bytes"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// exchange sends frames of many lengths from the end i, which must all arrive unchanged.
func (p *path) exchange(i int) {
	p.tb.Helper()
	p.got = [2][][]byte{}
	drops := p.ports[i].Trunk().QueueDrops
	var b packetio.Batch
	for k := range 40 {
		b.Frames = append(b.Frames, frame(60+k*230, byte(k)))
	}
	b.Frames = append(b.Frames, frame(packetio.MaxFrame, 99), frame(60, 100))
	if n, err := p.ports[i].Send(&b); n != len(b.Frames) || err != nil {
		p.tb.Fatalf("sent %d of %d frames: %v; %+v", n, len(b.Frames), err, p.ports[i].Trunk())
	}
	p.run(func() bool { return len(p.got[1-i]) == len(b.Frames) })
	for k := range b.Frames {
		if !bytes.Equal(p.got[1-i][k], b.Frames[k].Data) {
			p.tb.Fatalf("frame %d has changed", k)
		}
	}
	if s := p.ports[i].Trunk(); s.QueueDrops > drops {
		p.tb.Errorf("frames were dropped: %+v", s)
	}
}

// A socket without checksums refuses UDP_SEGMENT with EINVAL, as a device without them does with EIO. The
// train that was refused arrives all the same, and the kernel is not asked again.
func TestSegmentationRefused(t *testing.T) {
	p := newPath(t, 1500, false)
	if err := unix.SetsockoptInt(p.ports[0].line.(*udp).fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	p.up()
	if s := p.ports[0].Trunk(); s.Fallbacks != 0 || s.Slow != "" {
		t.Fatalf("a refusal before a train was sent: %+v", s)
	}
	for range 3 {
		p.exchange(0)
		p.exchange(1)
	}
	s := p.ports[0].Trunk()
	if s.Fallbacks != 1 || !strings.Contains(s.Slow, "UDP_SEGMENT (invalid argument)") {
		t.Errorf("fallbacks %d, %q", s.Fallbacks, s.Slow)
	}
	if s = p.ports[1].Trunk(); s.Fallbacks != 0 || s.Lost+s.Refused.Sum() > 0 {
		t.Errorf("the other end: %+v", s)
	}
}

// A path that has become shorter is no refusal of segmentation, though the kernel refuses the message; and
// what the own kernel refuses is not lost in the network.
func TestShorterPathIsNoRefusal(t *testing.T) {
	p := newPath(t, 9000, false)
	p.up()
	p.run(func() bool { return p.ports[0].Trunk().MTU == 9000 && p.ports[1].Trunk().MTU == 9000 })
	for i := range 2 {
		if out, err := exec.Command("nsenter", "--net="+p.netns[i], "ip", "link", "set", "lan", "mtu", "1400").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b := packetio.Batch{Frames: []packetio.Frame{frame(packetio.MaxFrame, 1)}}
	if n, err := p.ports[0].Send(&b); n != 0 || err != nil {
		t.Fatalf("sent %d: %v", n, err)
	}
	if s := p.ports[0].Trunk(); s.Fallbacks != 0 || s.MTU != 1400 {
		t.Errorf("fallbacks %d, MTU %d", s.Fallbacks, s.MTU)
	}
	p.exchange(0) // so the peer sees the gap
	p.run(func() bool { return p.ports[1].Trunk().Lost == 0 })
	if s := p.ports[0].Trunk(); s.Fallbacks != 0 {
		t.Errorf("fallbacks %d: %s", s.Fallbacks, s.Slow)
	}
}

// A system whose filter knows only old calls refuses sendmmsg and recvmmsg.
func TestSystemCallsRefused(t *testing.T) {
	p := newPath(t, 1500, false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the filter ends with the thread
		if err := refuse(unix.SYS_SENDMMSG, unix.SYS_RECVMMSG); err != nil {
			t.Errorf("seccomp: %v", err)
			return
		}
		p.up()
		p.exchange(0)
		p.exchange(1)
	}()
	<-ended
	for i := range 2 {
		if s := p.ports[i].Trunk(); s.Fallbacks != 2 || !strings.Contains(s.Slow, "sendmmsg (function not implemented), recvmmsg (function not implemented)") {
			t.Errorf("fallbacks %d, %q", s.Fallbacks, s.Slow)
		}
	}
}

// A kernel without UDP_GRO hands over one datagram at a time.
func TestJoiningRefused(t *testing.T) {
	p := newPath(t, 1500, false)
	for i := range 2 {
		if err := unix.SetsockoptInt(p.ports[i].line.(*udp).fd, unix.IPPROTO_UDP, unix.UDP_GRO, 0); err != nil {
			t.Fatal(err)
		}
	}
	p.up()
	p.exchange(0)
	p.exchange(1)
}

// refuse makes system calls of this thread fail with ENOSYS.
func refuse(calls ...uint32) error {
	var program []unix.SockFilter
	statement := func(code uint16, k uint32, jt, jf uint8) {
		program = append(program, unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf})
	}
	statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, 0) // seccomp_data.nr
	for i, c := range calls {
		statement(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, c, uint8(len(calls)-i), 0)
	}
	statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW, 0, 0)
	statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS), 0, 0)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0)
}
