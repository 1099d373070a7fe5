package switchd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a switch with hosts on ports in memory, inside a synctest bubble.
type bench struct {
	*Daemon
	t     *testing.T
	mu    sync.Mutex
	hosts []*memcable.Port // nil: the host is not connected
	ends  []*memcable.Port
}

var errNoPort = errors.New("no port")

// onBench runs f with a switch of three hosts, h0 to h2, and stops it afterwards.
func onBench(t *testing.T, change func(*Config), f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, hosts: make([]*memcable.Port, 3), ends: make([]*memcable.Port, 3)}
		cfg := Config{Seed: 1, Program: forward.Program{}, Open: b.open, NewWaiter: newWaiter}
		for i := range b.hosts {
			b.plugIn(i)
			cfg.Links = append(cfg.Links, Link{Host: fmt.Sprintf("h%d", i), Ifname: fmt.Sprintf("p%d", i)})
		}
		if change != nil {
			change(&cfg)
		}
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.Daemon = d
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		f(b)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := d.commands.Do(func() {}); !errors.Is(err, ErrStopped) {
			t.Errorf("Do after the end: %v", err)
		}
	})
}

func newWaiter(spin time.Duration, ports []packetio.Port) (packetio.Waiter, error) {
	var list []*memcable.Port
	for _, p := range ports {
		list = append(list, p.(*memcable.Port))
	}
	return memcable.NewWaiter(list...), nil
}

// plugIn connects host i.
func (b *bench) plugIn(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hosts[i], b.ends[i] = memcable.Pair(memcable.Config{})
}

func (b *bench) open(i int, _ Link) (packetio.Port, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i >= len(b.ends) || b.ends[i] == nil {
		return nil, errNoPort
	}
	p := b.ends[i]
	b.ends[i] = nil
	return p, nil
}

// send sends a frame from host i, and waits until the switch is idle.
func (b *bench) send(i int, frames ...[]byte) {
	b.t.Helper()
	var batch packetio.Batch
	for _, f := range frames {
		batch.Add(0, f)
	}
	if _, err := b.hosts[i].Send(&batch); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// got returns the frames that arrived at host i.
func (b *bench) got(i int) [][]byte {
	b.t.Helper()
	var batch packetio.Batch
	var out [][]byte
	for {
		n, err := b.hosts[i].Recv(&batch)
		if err != nil {
			b.t.Fatal(err)
		}
		if n == 0 {
			return out
		}
		for _, f := range batch.Frames {
			out = append(out, bytes.Clone(f.Data))
		}
	}
}

// expect checks how many frames arrived at each host.
func (b *bench) expect(what string, counts ...int) {
	b.t.Helper()
	for i, want := range counts {
		if n := len(b.got(i)); n != want {
			b.t.Errorf("%s: %d frames at h%d, want %d", what, n, i, want)
		}
	}
}

func (b *bench) inject(r fault.Rule) string {
	b.t.Helper()
	r, err := b.faults.Inject(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.ID
}

func mac(i int) wire.MAC { return wire.MAC{2, 0, 0, 0, 0, byte(i)} }

func frame(src, dst int) []byte {
	d := mac(dst)
	if dst < 0 {
		d = wire.MAC{255, 255, 255, 255, 255, 255}
	}
	s := mac(src)
	b := append(append(append([]byte{}, d[:]...), s[:]...), 0x88, 0xb5)
	return append(b, make([]byte, 46)...)
}

func roce(src, dst int, op wire.Opcode, psn wire.PSN) []byte {
	f := wire.Frame{Eth: wire.Ethernet{Dst: mac(dst), Src: mac(src)}}
	f.IPv4 = wire.IPv4{TTL: 64, DF: true, ID: uint16(psn), Src: [4]byte{10, 0, 0, byte(src)}, Dst: [4]byte{10, 0, 0, byte(dst)}}
	f.BTH = wire.BTH{Opcode: op, PKey: 0xffff, DestQP: 0x11, PSN: psn}
	f.Payload = []byte("12345678")
	return f.AppendTo(nil)
}

// know makes the switch learn the addresses of all hosts.
func (b *bench) know() {
	for i := range b.hosts {
		b.send(i, frame(i, -1))
	}
	b.expect("broadcasts", 2, 2, 2)
}

func TestForwarding(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		b.send(0, frame(0, 1), frame(0, 2), roce(0, 1, wire.RCSendOnly, 1))
		b.expect("unicast", 0, 2, 1)
		c, err := b.Counters()
		if err != nil || c.Ports[0].RxPackets != 4 || c.Ports[0].RxRoCE != 1 || c.Ports[1].SentPackets != 4 || c.Switch.MACs != 3 {
			t.Errorf("%+v, %v", c, err)
		}
		if f, _ := b.Flows(); len(f) != 1 || f[0].Packets != 1 {
			t.Errorf("flows %+v", f)
		}
		s, _ := b.Status()
		if len(s.Ports) != 3 || s.Ports[0].State != PortUp || s.Program != "forward" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestFaultsOnEachWay(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		up := b.inject(fault.Rule{Link: "h0", Dir: fault.Up, Kind: fault.Loss})
		b.send(0, frame(0, 1))
		b.send(1, frame(1, 0))
		b.expect("loss up", 1, 0, 0)
		if err := b.faults.RemoveFault(up); err != nil {
			t.Fatal(err)
		}
		b.inject(fault.Rule{Link: "h0", Dir: fault.Down, Kind: fault.Duplicate})
		b.send(0, frame(0, 1))
		b.send(1, frame(1, 0))
		b.expect("duplicate down", 2, 1, 0)
		if n, err := b.faults.Heal("h0"); n != 1 || err != nil {
			t.Errorf("Heal = %d, %v", n, err)
		}
		b.inject(fault.Rule{Link: "h1", Kind: fault.Blackhole, For: time.Second})
		b.send(0, frame(0, 1), frame(0, -1))
		b.expect("blackhole", 0, 0, 1)
		time.Sleep(2 * time.Second)
		b.send(0, frame(0, 1))
		b.expect("blackhole over", 0, 1, 0)
	})
}

func TestDelayAndReorder(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		one := 1
		b.inject(fault.Rule{Link: "h0", Dir: fault.Up, Kind: fault.Delay, Delay: 10 * time.Millisecond})
		b.inject(fault.Rule{Link: "h1", Dir: fault.Down, Kind: fault.Reorder, Match: fault.Match{PSNOffset: &one}})
		b.send(0, roce(0, 1, wire.RCSendOnly, 5), roce(0, 1, wire.RCSendOnly, 6), roce(0, 1, wire.RCSendOnly, 7))
		b.expect("too early", 0, 0, 0)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if n := len(b.got(1)); n != 2 {
			t.Errorf("%d frames after the delay, want 2", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		rest := b.got(1)
		if len(rest) != 1 || binary.BigEndian.Uint32(rest[0][50:])&0xffffff != 6 {
			t.Errorf("%d frames last", len(rest))
		}
		if s, _ := b.Status(); s.Delayed != 0 {
			t.Errorf("%d still delayed", s.Delayed)
		}
	})
}

func TestCorruptFlipsOneBit(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		b.inject(fault.Rule{Link: "h0", Dir: fault.Up, Kind: fault.Corrupt})
		in := roce(0, 1, wire.RCSendOnly, 5)
		b.send(0, in)
		got := b.got(1)
		if len(got) != 1 {
			t.Fatalf("%d frames", len(got))
		}
		bits := 0
		for i := range in {
			for x := in[i] ^ got[0][i]; x != 0; x &= x - 1 {
				bits++
			}
		}
		if bits != 1 {
			t.Errorf("%d bits differ", bits)
		}
		b.send(0, frame(0, 1)) // no checksum would detect a flipped bit in it
		b.expect("no IP", 0, 0, 0)
	})
}

func TestPartition(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		if err := b.faults.SetPartition([][]string{{"h0"}}); err != nil {
			t.Fatal(err)
		}
		b.send(0, frame(0, 1), frame(0, -1))
		b.send(1, frame(1, 2), frame(1, 0))
		b.expect("alone", 0, 0, 1)
		if s, _ := b.Status(); len(s.Partition) != 1 {
			t.Errorf("status %+v", s)
		}
		for _, bad := range [][][]string{{{"h9"}}, {{}}, {{"h0"}, {"h0", "h1"}}} {
			if err := b.faults.SetPartition(bad); !errors.Is(err, errPartition) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		if err := b.faults.SetPartition(nil); err != nil {
			t.Fatal(err)
		}
		b.send(0, frame(0, 1))
		b.expect("mended", 0, 1, 0)
	})
}

// A host's link is removed and connected again: the other hosts go on, and the link is reused.
func TestPortGoesAndComesBack(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		b.hosts[1].Close()
		var end *memcable.Port
		b.commands.Do(func() { end = b.ports.list[1].io.(*memcable.Port) })
		end.Close()
		b.send(0, frame(0, 2))
		b.send(0, frame(0, 1))
		// the second is flooded, because the port's addresses are forgotten
		if n := len(b.got(2)); n != 2 {
			t.Errorf("%d frames at h2", n)
		}
		s, _ := b.Status()
		if s.Ports[1].State != PortMissing || s.Ports[1].Error == "" {
			t.Errorf("port %+v", s.Ports[1])
		}
		time.Sleep(time.Second)
		if s, _ = b.Status(); s.Ports[1].Error != errNoPort.Error() {
			t.Errorf("port %+v", s.Ports[1])
		}
		b.plugIn(1)
		time.Sleep(time.Second)
		b.send(1, frame(1, 0))
		b.send(0, frame(0, 1))
		b.expect("back", 1, 1, 0)
	})
}

func TestMissingAtStart(t *testing.T) {
	onBench(t, func(c *Config) {
		open := c.Open
		c.Open = func(i int, l Link) (packetio.Port, error) {
			if i == 2 {
				return nil, errNoPort
			}
			return open(i, l)
		}
	}, func(b *bench) {
		b.send(0, frame(0, -1))
		b.expect("others", 0, 1, 0)
		if s, _ := b.Status(); s.Ports[2].State != PortMissing {
			t.Errorf("port %+v", s.Ports[2])
		}
	})
}

func TestEgressQueueIsBounded(t *testing.T) {
	onBench(t, func(c *Config) { c.Queue = 4 }, func(b *bench) {
		b.know()
		var burst [][]byte
		for range 10 {
			burst = append(burst, frame(0, 1))
		}
		b.send(0, burst...)
		b.expect("burst", 0, 4, 0)
		if c, _ := b.Counters(); c.Ports[1].Drops[pipeline.ReasonQueueFull] != 6 {
			t.Errorf("drops %v", c.Ports[1].Drops)
		}
	})
}

// The capture has a comment on every frame that was changed, on the link where that happened.
func TestCaptureComments(t *testing.T) {
	onBench(t, func(c *Config) {
		c.Faults.Rules = []fault.Rule{{ID: "lose", Link: "h0", Dir: fault.Up, Kind: fault.Loss, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCSendLast}}}}
	}, func(b *bench) {
		b.know()
		b.inject(fault.Rule{ID: "twice", Link: "h1", Dir: fault.Down, Kind: fault.Duplicate, Count: 1})
		b.inject(fault.Rule{ID: "late", Link: "h0", Dir: fault.Up, Kind: fault.Delay, Delay: time.Millisecond, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCSendMiddle}}})
		b.faults.SetPartition([][]string{{"h0"}, {"h2"}})
		var buf bytes.Buffer
		ctx, stop := context.WithCancel(b.t.Context())
		done := make(chan error)
		go func() {
			_, err := b.traffic.hub.Capture(ctx, &buf, tap.Options{Links: []string{"h0", "h1"}})
			done <- err
		}()
		synctest.Wait()
		b.send(0, roce(0, 1, wire.RCSendOnly, 1))
		b.send(0, roce(0, 1, wire.RCSendLast, 2))
		b.send(0, roce(0, 1, wire.RCSendMiddle, 3))
		b.send(0, frame(0, 2))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := `h0 up:
h1 down: fault twice (duplicate): sent 2 times
h1 down: fault twice (duplicate): sent 2 times
h0 up: fault lose (loss): dropped
h0 up: fault late (delay): delayed by 1ms
h0 up: dropped by the switch: partition
h1 down:
`
		if got := comments(t, &buf); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func comments(t *testing.T, buf io.Reader) string {
	r, err := pcapng.NewReader(buf)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var p pcapng.Packet
	for r.Next(&p) == nil {
		out.WriteString(strings.TrimSpace(p.Name+": "+strings.Join(p.Comments, "|")) + "\n")
	}
	return out.String()
}

func TestConfigIsChecked(t *testing.T) {
	good := func() Config {
		return Config{
			Program: forward.Program{}, Links: []Link{{Host: "h0", Ifname: "p0"}}, NewWaiter: newWaiter,
			Open: func(int, Link) (packetio.Port, error) { return nil, errNoPort },
		}
	}
	for what, change := range map[string]func(*Config){
		"no links":   func(c *Config) { c.Links = nil },
		"twice":      func(c *Config) { c.Links = append(c.Links, c.Links[0]) },
		"no opener":  func(c *Config) { c.Open = nil },
		"no program": func(c *Config) { c.Program = nil },
		"negative":   func(c *Config) { c.Queue = -1 },
		"bad fault":  func(c *Config) { c.Faults.Rules = []fault.Rule{{Link: "h7", Kind: fault.Loss}} },
	} {
		c := good()
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s passes", what)
		}
	}
}
