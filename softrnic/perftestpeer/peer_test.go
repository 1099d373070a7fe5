package perftestpeer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Messages of ibv_rc_pingpong and perftest, from a capture.
const (
	wirePlace  = "0000:000011:6cf216:00000000000000000000ffffc0a84d01\x00"
	wireRecord = "0000:0001:000018:995ce6:00000713:000055d5e30ae000:00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:4d:01:00000000:\x00"
)

func TestTextsOfTheWire(t *testing.T) {
	gid := verbs.GIDOf(netip.MustParseAddr("192.168.77.1"))
	var p place
	if err := p.Parse([]byte(wirePlace)); err != nil || p != (place{QPN: 0x11, PSN: 0x6cf216, GID: gid}) {
		t.Errorf("place %+v, %v", p, err)
	}
	if got := p.AppendTo(nil); string(got) != wirePlace {
		t.Errorf("place is written %q", got)
	}
	var r record
	want := record{Outs: 1, QPN: 0x18, PSN: 0x995ce6, RKey: 0x713, VAddr: 0x55d5e30ae000, GID: gid}
	if err := r.Parse([]byte(wireRecord)); err != nil || r != want {
		t.Errorf("record %+v, %v", r, err)
	}
	if got := r.AppendTo(nil); string(got) != wireRecord {
		t.Errorf("record is written %q", got)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add([]byte(wirePlace))
	f.Add([]byte(wirePlace[1:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p place
		if err := p.Parse(b); err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		var q place
		if err := q.Parse(p.AppendTo(nil)); err != nil || q != p {
			t.Errorf("%+v became %+v: %v", p, q, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(wireRecord))
	f.Add([]byte(wireRecord[1:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p record
		if err := p.Parse(b); err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		var q record
		if err := q.Parse(p.AppendTo(nil)); err != nil || q != p {
			t.Errorf("%+v became %+v: %v", p, q, err)
		}
	})
}

// pair is two NICs on a cable.
func pair(t *testing.T) (ctx [2]verbs.Context) {
	t.Helper()
	addrs := [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	macs := [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(memcable.Config{})
	for i := range ctx {
		d, err := device.Open(device.Config{
			Port: ports[i], Waiter: memcable.NewWaiter(ports[i]), Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(addrs[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 1)),
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return macs[1-i], a == addrs[1-i] },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		ctx[i] = d.Context()
	}
	return ctx
}

// both runs our client with our server.
func both(t *testing.T, client, server func(verbs.Context, net.Conn) (Result, error)) (c, s Result) {
	t.Helper()
	ctx := pair(t)
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	for _, c := range []net.Conn{x, y} {
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		var err error
		if s, err = server(ctx[1], y); err != nil {
			_ = y.Close() // the client shall not wait
		}
		done <- err
	}()
	c, err := client(ctx[0], x)
	if err != nil {
		_ = x.Close() // nor shall the server
	}
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestPingpong(t *testing.T) {
	for _, typ := range []string{"rc", "uc", "ud", "srq"} {
		t.Run(typ, func(t *testing.T) {
			cfg := Pingpong{Type: typ, Size: 1500, Iters: 50, Depth: 20, MTU: 512, Source: -1, Patience: 5 * time.Second}
			c, s := both(t,
				func(ctx verbs.Context, conn net.Conn) (Result, error) { return cfg.Run(ctx, conn) },
				func(ctx verbs.Context, conn net.Conn) (Result, error) {
					cfg := cfg
					cfg.Server = true
					return cfg.Run(ctx, conn)
				})
			if c.Iters < 50 || s.Iters < 50 || typ != "srq" && (c.QPN != s.PeerQPN || c.PeerQPN != s.QPN || c.Bytes != 100*1500) {
				t.Errorf("client %+v, server %+v", c, s)
			}
		})
	}
}

func TestPerftest(t *testing.T) {
	for _, test := range perftestTests() {
		t.Run(test, func(t *testing.T) {
			cfg := Perftest{Test: test, Size: 3000, Iters: 300, Source: -1, Patience: 5 * time.Second}
			c, _ := both(t,
				func(ctx verbs.Context, conn net.Conn) (Result, error) { return cfg.Run(ctx, conn) },
				func(ctx verbs.Context, conn net.Conn) (Result, error) {
					cfg := cfg
					cfg.Server = true
					return cfg.Run(ctx, conn)
				})
			if c.Iters != 300 || c.Usec <= 0 {
				t.Errorf("client %+v", c)
			}
		})
	}
}

// For any bytes from a peer, the run ends with an error, and nothing is left behind.
func TestStrangePeers(t *testing.T) {
	noGID := place{QPN: 3, PSN: 4}
	for name, text := range map[string][]byte{
		"nothing": nil, "cut off": []byte(wirePlace[:20]), "noise": bytes.Repeat([]byte{0xff}, 200),
		"no GID": noGID.AppendTo(nil), "unknown address": []byte(wirePlace),
	} {
		for _, run := range []func(verbs.Context, net.Conn) error{
			func(ctx verbs.Context, c net.Conn) error {
				_, err := Pingpong{Type: "rc", Server: true}.Run(ctx, c)
				return err
			},
			func(ctx verbs.Context, c net.Conn) error {
				_, err := Perftest{Test: "write_bw", Server: true}.Run(ctx, c)
				return err
			},
		} {
			ctx := pair(t)[0]
			x, y := net.Pipe()
			if err := y.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil { // the peer does not read
				t.Fatal(err)
			}
			go func() {
				_, _ = x.Write(text) // the other end may have closed the connection
				_ = x.Close()
			}()
			if err := run(ctx, y); err == nil {
				t.Errorf("%s: no error", name)
			}
			_ = y.Close() // closing it ends the writer
			if err := ctx.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// The ACK timeout of a link is that of its queue pair; 0 stands for the default.
func TestAckTimeout(t *testing.T) {
	for code, want := range map[uint8]uint8{0: timeoutCode, 18: 18} {
		ctx := pair(t)
		e, err := openEnd(ctx[0], verbs.RC, 4096, 1, 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l := link{to: verbs.AHAttr{DestGID: verbs.GIDOf(netip.MustParseAddr("10.0.0.2"))}, qpn: 5, mtu: verbs.MTU1024, timeout: code}
		if err := e.connect(l); err != nil {
			t.Fatal(err)
		}
		if a, err := e.qp.Query(); err != nil || a.RTS.Timeout != want {
			t.Errorf("code %d: %+v, %v; want timeout %d", code, a, err, want)
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}

// The defaults are perftest's.
func TestDefaultsOfPerftest(t *testing.T) {
	for _, want := range []Perftest{
		{Test: "write_bw", Iters: 5000, Size: 65536, Depth: 128},
		{Test: "read_bw", Iters: 1000, Size: 65536, Depth: 128},
		{Test: "send_lat", Iters: 1000, Size: 2, Depth: 1},
		{Test: "atomic_bw", Iters: 1000, Size: 8, Depth: 16},
	} {
		p := Perftest{Test: want.Test}
		if err := p.Validate(); err != nil || p.Iters != want.Iters || p.Size != want.Size || p.Depth != want.Depth {
			t.Errorf("%+v, %v; want %+v", p, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, p := range []Pingpong{{}, {Type: "xrc"}, {Type: "rc", Size: -1}, {Type: "ud", Size: 5000}, {Type: "rc", MTU: 1000}, {Type: "rc", Depth: 1 << 20}, {Type: "rc", Iters: -1}} {
		if p.Validate() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
	for _, p := range []Perftest{{}, {Test: "x_bw"}, {Test: "send_bw", Size: -1}, {Test: "send_bw", Depth: 1 << 20}, {Test: "send_bw", Outs: 1000}, {Test: "atomic_bw", Type: "x"}, {Test: "send_bw", MTU: 5}, {Test: "send_bw", Timeout: 32}, {Test: "send_bw", Iters: -1}} {
		if p.Validate() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
}
