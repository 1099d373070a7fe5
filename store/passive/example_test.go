package passive_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/passive"
)

// A rack in virtual time with a memory server, and a client that reads and changes its memory. On a
// rack the context and the manager come from the store's Host.
func Example() {
	rack, err := rackOf("name: example\nhosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]")
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
		c, err := passive.Open(passive.Config{Context: ctx, Manager: cn0.Manager(ctx), Servers: []netip.Addr{ms0.Addr()}}, 4096)
		if err != nil {
			log.Fatal(err)
		}
		deadline := ctx.Runtime().Now().Add(1e9)
		fmt.Println(c.Become(7), c.Write(0, 64, []byte("hello"), deadline))
		word := make([]byte, 5)
		fmt.Println(c.Read(0, 64, word, deadline), string(word))
		found, sent, err := c.Swap(0, 128, 0, 42, deadline)
		fmt.Println(found, sent, err)
		before, err := c.Count(0, 128, deadline)
		fmt.Println(before, err)

		// The service ends all connections of owner 7, and takes no new one.
		fmt.Println(memservice.Fence(ctx, cn0.Manager(ctx), ms0.Addr(), 7, deadline))
		fmt.Println(c.Write(0, 64, []byte("late"), deadline) != nil)
		_ = c.Close()
	})
	if err := rack.Run(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// <nil> <nil>
	// <nil> hello
	// 0 1 <nil>
	// 42 <nil>
	// <nil>
	// true
}

func rackOf(file string) (*simrack.Rack, error) {
	s, err := rackfile.Parse([]byte(file))
	if err != nil {
		return nil, err
	}
	return simrack.New(s, simrack.Options{})
}
