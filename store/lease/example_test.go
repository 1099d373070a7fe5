package lease_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/lease"
	"github.com/rdmalab/rdmalab/store/passive"
)

// The two ends of a lease. The request needs 3 ms to the server, and the client has no answer to a
// later one.
func ExampleTerms() {
	terms := lease.Terms{Length: 100 * time.Millisecond, Grace: 50 * time.Millisecond}
	sent := clock.Time(0)
	heard := sent.Add(3 * time.Millisecond)
	client := lease.Begin(terms.Length, sent)
	for _, ms := range []time.Duration{60, 101, 104, 154} {
		now := sent.Add(ms * time.Millisecond)
		fmt.Println(now.Sub(sent), "renew", client.Due(now), "valid", client.Valid(now), "lapsed", terms.Lapsed(heard, now), "over", terms.Over(heard, now))
	}
	// Output:
	// 60ms renew true valid true lapsed false over false
	// 101ms renew true valid false lapsed false over false
	// 104ms renew true valid false lapsed true over false
	// 154ms renew true valid false lapsed true over true
}

// A client that is taken for dead lives on. After its fence nothing that it has sent is executed any
// more, and with AddTo it needs another number.
func ExampleFencer() {
	file, err := rackfile.Parse([]byte("name: example\nhosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]"))
	if err != nil {
		log.Fatal(err)
	}
	rack, err := simrack.New(file, simrack.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rack.Close()
	ms0, cn0 := rack.Host("ms0"), rack.Host("cn0")
	ms0.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, ms0.Manager(ctx), memservice.Config{Buffer: make([]byte, 4096)})
		if err == nil {
			_ = s.Serve() // until the rack ends
		}
	})
	cn0.Go("client", false, func(ctx verbs.Context) {
		rt, servers := ctx.Runtime(), []netip.Addr{ms0.Addr()}
		deadline := rt.Now().Add(10 * time.Second)
		c, err := passive.Open(passive.Config{Context: ctx, Manager: cn0.Manager(ctx), Params: rdmacm.Params{Timeout: 10}, Servers: servers}, 64)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(c.Become(7), c.Write(0, 64, []byte("mine"), deadline))

		f := lease.NewFencer(lease.Config{Context: ctx, Dialer: cn0.Manager(ctx), Servers: servers, Timeout: time.Second, Pause: time.Millisecond})
		for x := f.AddTo(7); !f.Over(x); {
			rt.Sleep(time.Millisecond)
		}
		fmt.Println(errors.Is(c.Write(0, 64, []byte("late"), deadline), kv.ErrLost))
		fmt.Println(c.Become(8), c.Write(0, 64, []byte("mine"), deadline))
		f.Close()
		f.Wait()
		_ = c.Close()
	})
	if err := rack.Run(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// <nil> <nil>
	// true
	// <nil> <nil>
}
