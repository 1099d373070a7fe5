package hostd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/onerma/socket"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// program opens a program on a host of soloRack.
func program(t *testing.T, dir, on string) *socket.Client {
	t.Helper()
	c, err := socket.Open(t.Context(), rackfile.Paths{Dir: dir}.OneRMA(on))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // tests that close it themselves check the error
	return c
}

// memory registers memory of a program, and unmaps it at the end.
func memory(t *testing.T, c *socket.Client, n int, access verbs.Access) *socket.Memory {
	t.Helper()
	m, err := c.Register(t.Context(), n, access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // as above
	return m
}

// Programs on two hosts move bytes by a grant, by many goroutines at once, and by a loan.
func TestOneRMAPrograms(t *testing.T) {
	dir, cn, _ := upAs(t, soloRack())
	a, b := program(t, dir, "cn0"), program(t, dir, "ms0")
	shared := memory(t, b, 1<<16, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	local := memory(t, a, 1<<16, verbs.LocalWrite)
	g, err := shared.Grant(t.Context(), a.Addr(), a.PID())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := a.Use(t.Context(), b.Addr(), g)
	if err != nil || peer.Len() != 1<<16 {
		t.Fatal(peer, err)
	}
	var wg sync.WaitGroup
	for i := range 100 { // more than may be in flight
		wg.Go(func() {
			mine := local.Bytes()[i*600:][:600]
			for k := range mine {
				mine[k] = byte(i + k)
			}
			tr := socket.Transfer{Remote: peer, Offset: uint64(i * 600), Length: 600, Local: local, LocalOffset: uint64(i * 600)}
			if res, err := a.Write(t.Context(), tr); err != nil || res.Moved != 600 {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		})
	}
	wg.Wait()
	if !bytes.Equal(local.Bytes()[:60000], shared.Bytes()[:60000]) {
		t.Error("other bytes have arrived")
	}
	if err := a.Rekey(t.Context(), peer, nic.Key{1}); err != nil {
		t.Error(err)
	}
	var failed *host.StatusError
	if _, err := a.Read(t.Context(), socket.Transfer{Remote: peer, Length: 1, Local: local}); !errors.As(err, &failed) || failed.Status != nic.RemoteAuthenticationFailure {
		t.Errorf("READ with the old key: %v", err)
	}
	loan, err := a.Borrow(t.Context(), b.Addr(), 100)
	if err != nil {
		t.Fatal(err)
	}
	tr := socket.Transfer{Remote: loan, Length: 100, Local: local}
	if _, err := a.Write(t.Context(), tr); err != nil {
		t.Error(err)
	}
	if err := errors.Join(loan.Close(), peer.Close(), local.Close(), shared.Close()); err != nil {
		t.Error(err)
	}
	if s := status(t, cn).OneRMA; s.Processes != 2 { // the lender's and the program's
		t.Errorf("%+v", s)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	for status(t, cn).OneRMA.Processes != 1 {
		time.Sleep(time.Millisecond)
	}
	if _, err := a.Register(t.Context(), 1, 0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What a program must not do is refused with what is wrong, and harms nothing.
func TestOneRMAProgramsAreRefused(t *testing.T) {
	dir, _, _ := upAs(t, soloRack())
	a := program(t, dir, "cn0")
	local := memory(t, a, 100, 0)
	other := program(t, dir, "ms0")
	loan, err := a.Borrow(t.Context(), other.Addr(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for want, call := range map[string]func() error{
		"memory of 0 bytes":          func() error { _, err := a.Register(t.Context(), 0, 0); return err },
		"memory of 2147483648 bytes": func() error { _, err := a.Register(t.Context(), 2<<30, 0); return err },
		"with access":                func() error { _, err := a.Register(t.Context(), 1, verbs.RemoteAtomic); return err },
		"needs local memory with": func() error {
			_, err := a.Read(t.Context(), socket.Transfer{Remote: loan, Length: 1, Local: local})
			return err
		},
		"bytes [0,+101) of remote": func() error {
			_, err := a.Write(t.Context(), socket.Transfer{Remote: loan, Length: 101, Local: local})
			return err
		},
		"memory of this connection": func() error {
			_, err := other.Write(t.Context(), socket.Transfer{Remote: loan, Length: 1, Local: local})
			return err
		},
		"is this host":                 func() error { _, err := useOwn(t, a, local); return err },
		"want 16 bytes in hexadecimal": func() error { _, err := a.Use(t.Context(), other.Addr(), host.Grant{Read: "xx"}); return err },
		"to the IPv4 address of a NIC": func() error { _, err := local.Grant(t.Context(), netip.IPv6Loopback(), 1); return err },
		"not to invalid IP":            func() error { _, err := local.Grant(t.Context(), netip.Addr{}, 1); return err },
		"ask for 1 to":                 func() error { _, err := a.Borrow(t.Context(), other.Addr(), 0); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := socket.Open(t.Context(), "/nowhere"); err == nil {
		t.Error("opened a socket that is not there")
	}
	t.Setenv(socket.Env, "")
	if _, err := socket.Open(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "rdmalab exec") {
		t.Error(err)
	}
	if rackfile.EnvOneRMA != socket.Env {
		t.Error("two names for one variable")
	}
}

// useOwn writes to memory of the same host.
func useOwn(t *testing.T, c *socket.Client, local *socket.Memory) (host.Result, error) {
	t.Helper()
	g, err := local.Grant(t.Context(), c.Addr(), c.PID())
	if err != nil {
		t.Fatal(err)
	}
	own, err := c.Use(t.Context(), c.Addr(), g)
	if err != nil {
		t.Fatal(err)
	}
	return c.Write(t.Context(), socket.Transfer{Remote: own, Length: 1, Local: local})
}

// A transfer to a host that does not answer ends with its context, for each of the requests that may
// be in flight, and with the NIC.
func TestOneRMAProgramsWait(t *testing.T) {
	dir, cn, ms := upAs(t, soloRack())
	a := program(t, dir, "cn0")
	local := memory(t, a, 100, verbs.LocalWrite)
	loan, err := a.Borrow(t.Context(), program(t, dir, "ms0").Addr(), 100)
	if err != nil {
		t.Fatal(err)
	}
	nicOf := func(c interface {
		Call(ctx context.Context, method, path string, in, out any) error
	}, state string,
	) {
		t.Helper()
		if err := c.Call(t.Context(), http.MethodPost, PathNIC, NICRequest{State: state}, nil); err != nil {
			t.Fatal(err)
		}
	}
	nicOf(ms, StateDown)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	const many = 80 // more than may be in flight
	for range many {
		go func() {
			_, err := a.Read(ctx, socket.Transfer{Remote: loan, Length: 100, Local: local})
			ended <- err
		}()
	}
	time.AfterFunc(50*time.Millisecond, cancel)
	for range many {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled READ: %v", err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var failed *host.StatusError
	if _, err := a.Read(short, socket.Transfer{Remote: loan, Length: 100, Local: local}); !errors.As(err, &failed) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a READ with a deadline: %v", err)
	}
	go func() {
		_, err := a.Read(t.Context(), socket.Transfer{Remote: loan, Length: 100, Local: local})
		ended <- err
	}()
	time.Sleep(10 * time.Millisecond) // the READ may also begin after the crash, and must end as well
	nicOf(cn, StateDown)
	if err := <-ended; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a READ when the NIC crashes: %v", err)
	}
	if _, err := socket.Open(t.Context(), rackfile.Paths{Dir: dir}.OneRMA("cn0")); err == nil || !strings.Contains(err.Error(), "the NIC is down") {
		t.Errorf("a program for a NIC that is down: %v", err)
	}
	nicOf(cn, StateUp)
	program(t, dir, "cn0")
}

// No message of a program harms the daemon or other programs.
func TestOneRMAGarbage(t *testing.T) {
	dir, _, ms := upAs(t, soloRack())
	good := program(t, dir, "ms0")
	kept := memory(t, good, 4096, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	copy(kept.Bytes(), "kept")
	rng := rand.New(rand.NewPCG(20, 26))
	number := func() int64 {
		return []int64{0, 1, 2, 3, 4095, 4096, 1 << 20, 1<<31 - 1, 1 << 31, 1<<63 - 1, -1}[rng.IntN(11)]
	}
	words := []string{"who", "memory", "forget", "grant", "borrow", "use", "giveBack", "read", "write", "rekey", "cancel", "", "x"}
	for range 40 {
		conn, err := net.Dial("unixpacket", rackfile.Paths{Dir: dir}.OneRMA("ms0"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			m := map[string]any{"id": rng.IntN(100), "do": words[rng.IntN(len(words))]}
			for _, f := range []string{"bytes", "access", "pid", "region", "remote", "offset", "length", "at", "class", "within", "of"} {
				if rng.IntN(3) == 0 {
					m[f] = number()
				} else if rng.IntN(2) == 0 {
					m[f] = rng.IntN(5)
				}
			}
			if rng.IntN(4) == 0 {
				m["addr"] = []string{loopback(1).String(), loopback(2).String(), "::1", "", "x"}[rng.IntN(5)]
			}
			if rng.IntN(4) == 0 {
				m["grant"] = map[string]any{"region": 1, "length": number(), "read": fmt.Sprintf("%032x", i), "write": fmt.Sprintf("%032x", i), "rekey": fmt.Sprintf("%032x", i)}
			}
			b, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if rng.IntN(20) == 0 {
				b[rng.IntN(len(b))] = byte(rng.Uint32())
			}
			if _, err := conn.Write(b); err != nil {
				break // the daemon has ended the connection
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for status(t, ms).OneRMA.Processes != 2 {
		time.Sleep(time.Millisecond)
	}
	if !bytes.HasPrefix(kept.Bytes(), []byte("kept")) || good.Rekey(t.Context(), &socket.Remote{}, nic.Key{}) == nil {
		t.Error("another program was harmed")
	}
}
