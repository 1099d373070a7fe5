package memlink

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
)

var (
	_ afpacket.Source = (*Port)(nil)
	// discard is a log that no test reads.
	discard = slog.New(slog.DiscardHandler)
)

// link is a link whose both ends are in this process.
type link struct {
	path string
	l    *Listener
	sw   *Port // the switch's end
	host *Port
	conn *Connector
}

// patience bounds what a test waits for; a busy machine takes long.
const patience = 20 * time.Second

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func newPort(t testing.TB, cfg Config) *Port {
	t.Helper()
	p, err := NewPort(cfg)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, p)
	return p
}

// listen begins a switch with one link, of host cn0.
func listen(t testing.TB, path string, cfg Config) (*Listener, *Port) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, l)
	p, err := l.Port("cn0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, p)
	return l, p
}

// attached makes a link and waits until both ends are attached.
func attached(t testing.TB, cfg Config) *link {
	t.Helper()
	k := &link{path: filepath.Join(t.TempDir(), "links.sock")}
	k.l, k.sw = listen(t, k.path, cfg)
	k.host = newPort(t, cfg)
	k.conn = Connect(k.path, "cn0", k.host, discard)
	closing(t, k.conn)
	eventually(t, "both ends are attached", func() bool { return k.host.Attached() && k.sw.Attached() })
	return k
}

// roce is a RoCEv2 packet with a payload of n random bytes, as a NIC builds it.
func roce(r *rand.Rand, id uint16, n int) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	ip := b[14:]
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+n))
	binary.BigEndian.PutUint16(ip[4:], id)
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	b = append(b, 0xc0, 1, 0x12, 0xb7, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(b[len(b)-4:], uint16(8+n))
	for range n {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

func mustSend(t testing.TB, p *Port, b *packetio.Batch, want int) {
	t.Helper()
	if n, err := p.Send(b); n != want || err != nil {
		t.Fatalf("Send = %d, %v, want %d", n, err, want)
	}
}

// all receives until nothing is left, and returns copies.
func all(t testing.TB, p *Port) (frames []packetio.Frame) {
	t.Helper()
	var b packetio.Batch
	for {
		n, err := p.Recv(&b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return frames
		}
		for _, f := range b.Frames {
			f.Data = bytes.Clone(f.Data)
			frames = append(frames, f)
		}
	}
}

// Frames arrive with their bytes and what packet sockets carry beside them, in both directions.
func TestFramesCross(t *testing.T) {
	k := attached(t, Config{MTU: 4200, Index: 3})
	r := rand.New(rand.NewPCG(1, 1))
	var b packetio.Batch
	for i := range 40 {
		f := packetio.Frame{Data: roce(r, uint16(i), 1+r.IntN(4000))}
		switch i % 4 {
		case 1:
			f.SegSize, f.CsumPartial, f.CsumStart, f.CsumOffset = 60, true, 34, 6
		case 2:
			f.Data = append(f.Data, make([]byte, 60000)...)
			f.Offload, f.CsumPartial, f.CsumStart, f.CsumOffset = packetio.Offload{Type: 1, HdrLen: 66, Size: 1448}, true, 34, 16
		}
		b.Frames = append(b.Frames, f)
	}
	for _, end := range [][2]*Port{{k.host, k.sw}, {k.sw, k.host}} {
		mustSend(t, end[0], &b, len(b.Frames))
		got := all(t, end[1])
		if len(got) != len(b.Frames) {
			t.Fatalf("%d frames of %d arrived", len(got), len(b.Frames))
		}
		for i, f := range b.Frames {
			g := got[i]
			if !bytes.Equal(f.Data, g.Data) || f.SegSize != g.SegSize || f.CsumPartial != g.CsumPartial || f.CsumStart != g.CsumStart ||
				f.CsumOffset != g.CsumOffset || f.Offload != g.Offload || g.Port != 3 {
				t.Fatalf("frame %d changed: %+v", i, g)
			}
		}
		tx, rx := end[0].Stats(), end[1].Stats()
		if tx.TxPackets != rx.RxPackets || tx.TxBytes != rx.RxBytes || tx.TxPackets <= 40 || tx.TxDropped+rx.RxDropped != 0 {
			t.Errorf("sent %+v, received %+v", tx, rx)
		}
	}
}

// With Merge a run of packets crosses as one super-frame, and Split gives the same packets back.
func TestMerge(t *testing.T) {
	k := attached(t, Config{MTU: 4200, Merge: true})
	r := rand.New(rand.NewPCG(1, 2))
	var b, out packetio.Batch
	for i := range 200 {
		b.Add(0, roce(r, uint16(i), 16+1000*(i/150)))
	}
	mustSend(t, k.host, &b, 200)
	frames := all(t, k.sw)
	for _, f := range frames {
		out.Split(f)
	}
	if len(frames) != 3 || len(out.Frames) != 200 { // 128, 22, and 50 long ones
		t.Fatalf("%d frames of %d packets", len(frames), len(out.Frames))
	}
	for i := range out.Frames {
		if !bytes.Equal(out.Frames[i].Data, b.Frames[i].Data) {
			t.Fatalf("packet %d changed", i)
		}
	}
	if s := k.sw.Stats(); s.RxPackets != 200 {
		t.Errorf("%+v", s)
	}
}

// What a full ring drops is counted at the receiver; what the link does not take, at the sender.
func TestDrops(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	var b packetio.Batch
	for i := range Slots + 70 {
		f := make([]byte, 100)
		binary.BigEndian.PutUint32(f[14:], uint32(i))
		b.Add(0, f)
	}
	mustSend(t, k.host, &b, Slots+70)
	got := all(t, k.sw)
	if len(got) != Slots || binary.BigEndian.Uint32(got[Slots-1].Data[14:]) != Slots-1 {
		t.Fatalf("%d frames arrived", len(got))
	}
	if s := k.sw.Stats(); s.RxDropped != 70 || s.RxPackets != Slots {
		t.Errorf("receiver: %+v", s)
	}
	b.Reset()
	tagged := make([]byte, 1518)
	tagged[12] = 0x81
	for _, f := range [][]byte{make([]byte, 1514), make([]byte, 1515), tagged, make([]byte, 13), nil} {
		b.Add(0, f)
	}
	b.Frames = append(b.Frames, packetio.Frame{Data: make([]byte, packetio.MaxFrame+1), SegSize: 1000})
	mustSend(t, k.host, &b, 2)
	if n := len(all(t, k.sw)); n != 2 {
		t.Errorf("%d frames arrived", n)
	}
	if s := k.host.Stats(); s.TxDropped != 4 || s.TxPackets != Slots+72 {
		t.Errorf("sender: %+v", s)
	}
	b.Frames = b.Frames[:1]
	before := k.host.Stats().TxDropped
	k.host.SetUp(false)
	mustSend(t, k.host, &b, 0)
	k.host.SetUp(true)
	if n := k.host.Stats().TxDropped - before; n != 1 {
		t.Errorf("a link that is down has dropped %d packets of 1", n)
	}
	k.sw.SetUp(false)
	mustSend(t, k.host, &b, 1)
	if n := len(all(t, k.sw)); n != 0 || k.sw.Stats().RxDropped != 71 {
		t.Errorf("a link that is down let %d frames pass: %+v", n, k.sw.Stats())
	}
}

// DataBytes bounds the bytes in flight: a receiver that does not read costs no more memory.
func TestDataBound(t *testing.T) {
	k := attached(t, Config{MTU: 4200})
	var b packetio.Batch
	for range 200 {
		b.Frames = append(b.Frames, packetio.Frame{Data: make([]byte, 65000), SegSize: 4000})
	}
	mustSend(t, k.sw, &b, 200)
	if n := len(all(t, k.host)); n < DataBytes/65100-1 || n > DataBytes/65000 {
		t.Errorf("%d frames of 65000 bytes fit into %d bytes", n, DataBytes)
	}
	mustSend(t, k.sw, &b, 200) // and again from the beginning
	if n := len(all(t, k.host)); n < DataBytes/65100-1 {
		t.Errorf("%d frames the second time", n)
	}
}

// Frames of random sizes, received at random times, keep their bytes and order while the ring turns
// many times.
func TestRandomTraffic(t *testing.T) {
	for seed := range uint64(4) {
		k := attached(t, Config{MTU: 9000})
		r := rand.New(rand.NewPCG(seed, 3))
		pattern := make([]byte, 1<<17)
		for i := range pattern {
			pattern[i] = byte(r.Uint32())
		}
		content := func(i, n int) []byte { return pattern[i%65536:][:n] }
		type sent struct{ i, n int }
		var flying []sent
		var out, in packetio.Batch
		bytesSent := 0
		for i := 0; bytesSent < 6*DataBytes; {
			out.Reset()
			for range r.IntN(60) {
				n := 14 + r.IntN(1200)
				if r.IntN(5) == 0 {
					n = 14 + r.IntN(65000)
				}
				out.Frames = append(out.Frames, packetio.Frame{Data: content(i, n), SegSize: 9000})
				flying = append(flying, sent{i, n})
				bytesSent += n
				i++
			}
			mustSend(t, k.host, &out, len(out.Frames))
			if len(flying) < Slots && r.IntN(20) > 0 && i%4096 < 2048 {
				continue // fills the ring
			}
			for range r.IntN(4) {
				if _, err := k.sw.Recv(&in); err != nil {
					t.Fatal(err)
				}
				for _, f := range in.Frames {
					for len(flying) > 0 && (flying[0].n != len(f.Data) || !bytes.Equal(f.Data, content(flying[0].i, flying[0].n))) {
						flying = flying[1:] // dropped
					}
					if len(flying) == 0 {
						t.Fatalf("seed %d: a frame of %d bytes is not what was sent, or not in order", seed, len(f.Data))
					}
					flying = flying[1:]
				}
			}
		}
		if k.sw.Stats().RxDropped == 0 {
			t.Errorf("seed %d: the ring was never full", seed)
		}
	}
}

// A bell is rung once for a reader that sleeps, and never for one that is awake.
func TestNoBellWhileAwake(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	rings := func() (strokes int) {
		for j := k.sw.at.Load(); ; strokes++ {
			if _, err := unix.Read(j.bell, j.stroke[:]); err != nil {
				return strokes
			}
		}
	}
	var b packetio.Batch
	b.Add(0, make([]byte, 100))
	send := func() {
		for range 5 {
			mustSend(t, k.host, &b, 1)
		}
	}
	if send(); rings() != 0 {
		t.Error("an awake reader was woken")
	}
	k.sw.Sleeping(true)
	if !k.sw.Ready() {
		t.Error("the reader would sleep with frames in its ring")
	}
	all(t, k.sw)
	if send(); rings() != 1 {
		t.Error("a sleeping reader was not woken once")
	}
	k.sw.Sleeping(true)
	k.sw.Sleeping(false)
	if send(); rings() != 0 {
		t.Error("a reader that is awake again was woken")
	}
}

// Frames go to and fro between two goroutines that sleep before each one: no wake-up is lost.
func TestWakeUps(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	rounds := 20000
	if testing.Short() {
		rounds = 2000
	}
	for _, spin := range []time.Duration{0, 5 * time.Microsecond} {
		echo := make(chan error, 1)
		stop := make(chan struct{})
		waiter := func(p *Port) *afpacket.Waiter {
			w, err := afpacket.NewWaiterBeside([]afpacket.Source{p}, spin)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		ws, wh := waiter(k.sw), waiter(k.host)
		go func() {
			var in packetio.Batch
			for {
				select {
				case <-stop:
					echo <- nil
					return
				default:
				}
				if n, err := k.sw.Recv(&in); err != nil {
					echo <- err
					return
				} else if n > 0 {
					if _, err := k.sw.Send(&in); err != nil {
						echo <- err
						return
					}
					continue
				}
				if err := ws.Wait(-1); err != nil {
					echo <- err
					return
				}
			}
		}()
		var out, in packetio.Batch
		out.Add(0, make([]byte, 64))
		for i := range rounds {
			binary.BigEndian.PutUint32(out.Frames[0].Data[20:], uint32(i))
			mustSend(t, k.host, &out, 1)
			for begin := time.Now(); ; {
				if n, err := k.host.Recv(&in); err != nil {
					t.Fatal(err)
				} else if n > 0 {
					break
				}
				if err := wh.Wait(patience); err != nil {
					t.Fatal(err)
				}
				if time.Since(begin) > patience {
					t.Fatalf("round %d: no answer", i)
				}
			}
			if got := binary.BigEndian.Uint32(in.Frames[0].Data[20:]); got != uint32(i) {
				t.Fatalf("round %d: answer %d", i, got)
			}
		}
		close(stop)
		ws.Wake()
		if err := <-echo; err != nil {
			t.Fatal(err)
		}
		for _, w := range []*afpacket.Waiter{ws, wh} {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Neither side allocates for a frame.
func TestNoAllocations(t *testing.T) {
	k := attached(t, Config{MTU: 4200, Merge: true})
	r := rand.New(rand.NewPCG(1, 4))
	var out, in packetio.Batch
	for i := range 30 {
		out.Add(0, roce(r, uint16(i), 1000))
	}
	out.Add(0, make([]byte, 100))
	cross := func() {
		if _, err := k.host.Send(&out); err != nil {
			t.Fatal(err)
		}
		for {
			if n, err := k.sw.Recv(&in); err != nil {
				t.Fatal(err)
			} else if n == 0 {
				return
			}
		}
	}
	cross()
	if n := testing.AllocsPerRun(100, cross); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
