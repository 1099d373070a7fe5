package remotemem_test

import (
	"fmt"
	"log"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client on a rack in virtual time: two operations that are in flight together, and two in a chain,
// which have one doorbell and one completion.
func Example() {
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
		f, err := remotemem.New(remotemem.Config{Context: ctx, Buffer: 1024})
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		var far memservice.Region
		peer, err := f.AddPeer(ms0.Addr(), 0, func(qp verbs.QP, until clock.Time) (err error) {
			far, err = memservice.Dial(cn0.Manager(ctx), qp, ms0.Addr(), rdmacm.Params{}, until)
			return err
		})
		deadline := ctx.Runtime().Now().Add(1e9)
		if err != nil || f.Open(peer, deadline) != nil || f.MR().WriteAt([]byte("hello"), 0) != nil {
			log.Fatal("no connection: ", err)
		}
		at := func(off uint64) remotemem.Target {
			return remotemem.Target{Peer: peer, Addr: far.Addr + off, RKey: far.RKey}
		}

		var write, add, again, read remotemem.Op
		f.Write(&write, at(64), 0, 5)     // 5 bytes from place 0 of the buffer
		f.FetchAdd(&add, at(128), 10, 16) // the word before comes to place 16
		fmt.Println(f.Do(deadline, &write, &add))

		f.FetchAdd(&again, at(128), 1, 24)
		f.Read(&read, at(64), 32, 5)
		fmt.Println(f.Chain(&again, &read), f.Wait(deadline, &again, &read))
		word, err := f.Word(24)
		text := make([]byte, 5)
		fmt.Println(word, err, f.MR().ReadAt(text, 32), string(text))
	})
	if err := rack.Run(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// <nil>
	// <nil> <nil>
	// 10 <nil> <nil> hello
}
