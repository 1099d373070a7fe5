package afpacket

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestVLANTagSurvives(t *testing.T) {
	for name, noRing := range map[string]bool{"ring": false, "recvmmsg": true} {
		t.Run(name, func(t *testing.T) {
			isolated(t, 4200, func(t *testing.T) {
				a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Switch, NoRing: noRing})
				plain := frame(4214, 3)
				tagged := append(bytes.Clone(plain[:macsLen]), 0x81, 0, 0x60, 5)
				tagged = append(tagged, plain[macsLen:]...)
				var batch packetio.Batch
				batch.Add(0, tagged)
				batch.Add(0, plain)
				if n, err := a.Send(&batch); n != 2 || err != nil {
					t.Fatalf("Send = %d, %v", n, err)
				}
				got := receive(t, b, 2)
				if len(got) != 2 || !bytes.Equal(got[0].Data, tagged) || !bytes.Equal(got[1].Data, plain) {
					t.Fatalf("%d frames, first % x", len(got), got[0].Data[:20])
				}
			})
		})
	}
}

// superFrame returns a frame that segmentation offload cuts into n UDP datagrams with size bytes of
// payload each.
func superFrame(size, n int) packetio.Frame {
	payload := size * n
	b := make([]byte, 42+payload)
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0})
	binary.BigEndian.PutUint16(b[16:], uint16(28+payload))
	b[20], b[22], b[23] = 0x40, 64, 17
	copy(b[26:], []byte{10, 9, 0, 1, 10, 9, 0, 2})
	binary.BigEndian.PutUint16(b[34:], 49152)
	binary.BigEndian.PutUint16(b[36:], 4791)
	binary.BigEndian.PutUint16(b[38:], uint16(8+payload))
	for i := range payload {
		b[42+i] = byte(i / size)
	}
	return packetio.Frame{Data: b, SegSize: size, CsumPartial: true, CsumStart: 34, CsumOffset: 6}
}

func TestSuperFramesCrossWhole(t *testing.T) {
	for name, noRing := range map[string]bool{"ring": false, "recvmmsg": true} {
		t.Run(name, func(t *testing.T) {
			isolated(t, 4200, func(t *testing.T) {
				a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Host, NoRing: noRing})
				var batch packetio.Batch
				for i := range 40 { // more than there are buffers for long frames, with short frames between them
					batch.Frames = append(batch.Frames, superFrame(4120, 1+i%15))
				}
				if n, err := a.Send(&batch); n != 40 || err != nil {
					t.Fatalf("Send = %d, %v", n, err)
				}
				got := receive(t, b, 40)
				if len(got) != 40 {
					t.Fatalf("%d frames, want 40; %+v", len(got), b.Stats())
				}
				for i, f := range got {
					want := batch.Frames[i]
					if !bytes.Equal(f.Data, want.Data) || !f.CsumPartial || f.CsumStart != 34 || (i%15 > 0 && f.SegSize != want.SegSize) {
						t.Fatalf("frame %d: %d bytes, seg %d, want %d, %d", i, len(f.Data), f.SegSize, len(want.Data), want.SegSize)
					}
				}
			})
		})
	}
}

func TestRefusedFramesAreCounted(t *testing.T) {
	isolated(t, 1500, func(t *testing.T) {
		a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Switch})
		var batch packetio.Batch
		batch.Add(0, frame(100, 1))
		batch.Add(0, frame(3000, 2)) // beyond the MTU
		batch.Add(0, nil)
		batch.Add(0, frame(100, 3))
		if n, err := a.Send(&batch); n != 2 || err != nil {
			t.Errorf("Send = %d, %v", n, err)
		}
		if s := a.Stats(); s.TxPackets != 2 || s.TxDropped != 2 {
			t.Errorf("stats %+v", s)
		}
		if got := receive(t, b, 2); len(got) != 2 || got[1].Data[20] != 3 {
			t.Errorf("%d frames arrived", len(got))
		}
	})
}

func TestOverflowIsCounted(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Switch, Slots: 16})
		var batch packetio.Batch
		for i := range 100 {
			batch.Add(0, frame(100, byte(i)))
		}
		if n, err := a.Send(&batch); n != 100 || err != nil {
			t.Fatalf("Send = %d, %v", n, err)
		}
		got := receive(t, b, 15)
		if s := b.Stats(); len(got) == 100 || s.RxPackets+s.RxDropped != 100 {
			t.Errorf("%d arrived, stats %+v", len(got), s)
		}
	})
}

// The kernel of a host must not answer RoCEv2, and must go on answering everything else.
func TestKernelIsSilent(t *testing.T) {
	for name, cfg := range map[string]Config{
		"tcx":    {Ifname: endB, Mode: Host},
		"socket": {Ifname: endB, Mode: Host, NoTCX: true},
	} {
		t.Run(name, func(t *testing.T) {
			isolated(t, 4200, func(t *testing.T) {
				setAddr(t, endB, [4]byte{10, 9, 0, 2})
				setUp(t, "lo", true)
				probe := open(t, Config{Ifname: endA, Mode: Tap})
				ask := func(port uint16, src byte, limit time.Duration) (answers int) {
					f := superFrame(64, 1)
					copy(f.Data, macOf(t, endB))
					f.Data[29] = src
					binary.BigEndian.PutUint16(f.Data[36:], port)
					binary.BigEndian.PutUint16(f.Data[24:], checksum(f.Data[14:34]))
					var batch packetio.Batch
					batch.Add(0, f.Data) // no UDP checksum
					if n, err := probe.Send(&batch); n != 1 || err != nil {
						t.Fatalf("Send = %d, %v", n, err)
					}
					for end := time.Now().Add(limit); answers == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
						if _, err := probe.Recv(&batch); err != nil {
							t.Fatal(err)
						}
						for _, f := range batch.Frames { // ARP for us, or ICMP
							if kind := binary.BigEndian.Uint16(f.Data[12:]); kind == 0x0806 || kind == 0x0800 {
								answers++
							}
						}
					}
					return answers
				}
				if ask(4791, 21, patience) == 0 {
					t.Fatal("the kernel does not answer without a port: the test proves nothing")
				}
				p := open(t, cfg)
				if p.Info().Silencer != name {
					t.Skipf("this kernel cannot: %+v", p.Info())
				}
				if n := ask(4791, 22, 150*time.Millisecond); n != 0 {
					t.Errorf("%d answers to RoCEv2", n)
				}
				if got := receive(t, p, 1); len(got) != 1 {
					t.Error("the port did not get the packet")
				}
				if ask(4790, 23, patience) == 0 {
					t.Error("the kernel does not answer other traffic any more")
				}
				var in packetio.Batch
				if _, err := p.Recv(&in); err != nil || len(in.Frames) != 0 {
					t.Errorf("the port got what is no RoCEv2: %d frames, %v", len(in.Frames), err)
				}
			})
		})
	}
}

// In a namespace without addresses and IPv6, as that of a switch, the kernel answers nothing, though no
// program keeps frames from it. The same frames have answers where there is an address.
func TestUnaddressedNamespaceIsSilent(t *testing.T) {
	for name, addressed := range map[string]bool{"with an address": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			isolated(t, 4200, func(t *testing.T) {
				if addressed {
					setAddr(t, endB, [4]byte{10, 9, 0, 2})
				} else if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0o644); err != nil {
					t.Skipf("the kernel's settings: %v", err)
				}
				setUp(t, "lo", true)
				probe := open(t, Config{Ifname: endA, Mode: Tap})
				p := open(t, Config{Ifname: endB, Mode: Switch, Unaddressed: true})
				if in := p.Info(); in.Silencer != "none" || len(in.Notes) > 0 {
					t.Errorf("%+v", in)
				}
				sent := temptations(t)
				if n, err := probe.Send(&sent); n != len(sent.Frames) || err != nil {
					t.Fatalf("Send = %d, %v", n, err)
				}
				if got := receive(t, p, n(sent)); len(got) < n(sent) {
					t.Errorf("%d frames of %d reach the port", len(got), n(sent))
				}
				answers := 0
				limit := 150 * time.Millisecond
				if addressed {
					limit = patience
				}
				for end := time.Now().Add(limit); answers == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					var in packetio.Batch
					if _, err := probe.Recv(&in); err != nil {
						t.Fatal(err)
					}
					answers += len(in.Frames)
				}
				if (answers > 0) != addressed {
					t.Errorf("%d answers", answers)
				}
			})
		})
	}
}

func n(b packetio.Batch) int { return len(b.Frames) }

// temptations are frames that make a kernel answer: requests of ARP to all and to one, RoCEv2 to a
// port without a socket, and a query of IGMP.
func temptations(t *testing.T) (b packetio.Batch) {
	broadcast := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	own, mac := macOf(t, endA), macOf(t, endB)
	ethernet := func(to []byte, kind uint16, payload ...byte) {
		b.Add(0, slices.Concat(to, own, binary.BigEndian.AppendUint16(nil, kind), payload, make([]byte, 60)))
	}
	arp := slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, own, []byte{10, 9, 0, 1}, make([]byte, 6), []byte{10, 9, 0, 2})
	ethernet(broadcast, 0x0806, arp...)
	ethernet(mac, 0x0806, arp...)
	f := superFrame(64, 1)
	copy(f.Data, mac)
	binary.BigEndian.PutUint16(f.Data[36:], wire.UDPPort)
	binary.BigEndian.PutUint16(f.Data[24:], checksum(f.Data[14:34]))
	b.Add(0, f.Data)
	igmp := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 9, 0, 1, 224, 0, 0, 1, 0x11, 1, 0xee, 0xfe, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(igmp[10:], checksum(igmp[:20]))
	ethernet([]byte{1, 0, 0x5e, 0, 0, 1}, 0x0800, igmp...)
	return b
}

func macOf(t *testing.T, name string) []byte {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i.HardwareAddr
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Switch})
		w, err := NewWaiter(0, b)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var out, in packetio.Batch
		data := frame(110, 1)
		round := func() {
			out.Reset()
			for range 10 {
				out.Add(0, data)
			}
			if _, err := a.Send(&out); err != nil {
				t.Fatal(err)
			}
			for got := 0; got < 10; {
				n, err := b.Recv(&in)
				if err != nil {
					t.Fatal(err)
				}
				if got += n; got < 10 {
					if err := w.Wait(time.Second); err != nil {
						t.Fatal(err)
					}
				}
			}
			_, _ = b.Recv(&in)
			if err := w.Wait(100 * time.Microsecond); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(100, round); n > 0 {
			t.Errorf("%v allocations a round of 10 frames", n)
		}
	})
}

// forward copies frames between two ports until stop is closed, as a switch does.
func forward(tb testing.TB, stop <-chan struct{}, ports [2]*Port) {
	w, err := NewWaiter(50*time.Microsecond, ports[:]...)
	if err != nil {
		tb.Error(err)
		return
	}
	defer w.Close()
	var b packetio.Batch
	for {
		select {
		case <-stop:
			return
		default:
		}
		moved := 0
		for i, p := range ports {
			n, err := p.Recv(&b)
			if err != nil {
				tb.Error(err)
				return
			}
			if _, err := ports[1-i].Send(&b); err != nil {
				tb.Error(err)
				return
			}
			moved += n
		}
		if moved == 0 {
			if err := w.Wait(10 * time.Millisecond); err != nil {
				tb.Error(err)
				return
			}
		}
	}
}

// inNewNS runs f on a thread with a new network namespace, given the descriptor of the caller's.
// The namespace exists until the test ends, because its removal removes the veth pair, and a port
// of the other end that is still in use would report that.
func inNewNS(tb testing.TB, f func(outer int)) <-chan struct{} {
	outer, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(outer)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			tb.Error(err)
			return
		}
		inner, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			tb.Error(err)
			return
		}
		tb.Cleanup(func() { unix.Close(inner) })
		quiet(tb)
		setUp(tb, "lo", true)
		f(outer)
	}()
	return done
}

// A TCP stream between two kernels passes two ports: incomplete checksums and super-frames must
// arrive unchanged.
func TestKernelTCPCrosses(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		const total = 64 << 20
		ready := make(chan struct{})
		received, server := tcpServer(t, ready)
		elapsed, client := tcpClient(t, ready, total)
		a, b := waitOpen(t, "swa"), waitOpen(t, "swb")
		setUp(t, "swa", true)
		setUp(t, "swb", true)
		stop := make(chan struct{})
		switched := make(chan struct{})
		go func() { defer close(switched); forward(t, stop, [2]*Port{a, b}) }()
		close(ready)
		<-client
		<-server
		select {
		case res := <-received:
			if res.n != total || !res.right {
				t.Errorf("%d of %d bytes, content right: %v", res.n, total, res.right)
			}
		case <-time.After(patience):
			t.Error("the stream did not end")
		}
		close(stop)
		<-switched
		sa, sb := a.Stats(), b.Stats()
		t.Logf("%d MiB in %v = %.1f Gbit/s; a %+v b %+v", total>>20, *elapsed, float64(total)*8/elapsed.Seconds()/1e9, sa, sb)
		if drops := sa.RxDropped + sb.RxDropped + sa.TxDropped + sb.TxDropped; drops > sa.RxPackets/100 {
			t.Errorf("%d frames dropped", drops)
		}
	})
}

// tcpResult is the length of a received stream, and whether every sampled byte was right.
type tcpResult struct {
	n     int64
	right bool
}

// tcpServer receives one stream in a namespace of its own, behind the interface swb of the
// caller's. Its namespace exists until ready is closed; the listening socket longer.
func tcpServer(t *testing.T, ready <-chan struct{}) (<-chan tcpResult, <-chan struct{}) {
	received := make(chan tcpResult, 1)
	done := inNewNS(t, func(outer int) {
		addVeth(t, "eth", "swb", 4200, outer)
		setUp(t, "eth", true)
		setAddr(t, "eth", [4]byte{10, 9, 0, 2})
		l, err := net.Listen("tcp", "10.9.0.2:5001")
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			res := tcpResult{right: true}
			buf := make([]byte, 256<<10)
			for {
				n, err := c.Read(buf)
				for i := 0; i < n; i += 997 {
					res.right = res.right && buf[i] == pattern(res.n+int64(i))
				}
				if res.n += int64(n); err != nil {
					break
				}
			}
			received <- res
		}()
		<-ready
	})
	return received, done
}

// tcpClient sends total bytes from a namespace of its own, behind the interface swa, once ready is
// closed.
func tcpClient(t *testing.T, ready <-chan struct{}, total int) (*time.Duration, <-chan struct{}) {
	elapsed := new(time.Duration)
	return elapsed, inNewNS(t, func(outer int) {
		addVeth(t, "eth", "swa", 4200, outer)
		setUp(t, "eth", true)
		setAddr(t, "eth", [4]byte{10, 9, 0, 1})
		<-ready
		// With a single address and no resolver, Dial stays on this goroutine, and so in its
		// namespace.
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp4", "10.9.0.2:5001")
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		buf := make([]byte, 1<<20)
		start := time.Now()
		for sent := 0; sent < total; sent += len(buf) {
			for i := range buf {
				buf[i] = pattern(int64(sent + i))
			}
			if _, err := c.Write(buf); err != nil {
				t.Error(err)
				return
			}
		}
		*elapsed = time.Since(start)
	})
}

func pattern(i int64) byte { return byte(i ^ i>>8 ^ i>>16) }

// waitOpen opens the port as soon as the interface exists.
func waitOpen(t *testing.T, name string) *Port {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		p, err := Open(Config{Ifname: name, Mode: Switch})
		if err == nil {
			t.Cleanup(func() { _ = p.Close() })
			return p
		}
		if time.Now().After(end) || !strings.Contains(err.Error(), ErrNoInterface.Error()) {
			t.Fatal(err)
		}
	}
}
