package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/onerma/socket"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// soloKeyRounds is how many new keys or new connections are measured.
const soloKeyRounds = 200

// soloKeyPatience bounds the time to make a connection, and then the time of the READ over it. So
// an interrupted measurement ends after at most twice this time.
const soloKeyPatience = 5 * time.Second

// soloKeys measures how long a new key of a region takes, alone and with a READ by it. With RoCEv2
// it measures a new connection instead of a new key. The rdmalab process itself uses the NICs of
// the memory server and of the first host.
func (p *soloRun) soloKeys(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	rounds := p.rekeys
	if l.Way == experiment.WayRoCE {
		rounds = p.reconnects
	}
	first, all := make([]time.Duration, soloKeyRounds), make([]time.Duration, soloKeyRounds)
	if err := rounds(ctx, first, all); err != nil {
		return err
	}
	slices.Sort(first)
	slices.Sort(all)
	out.Median, out.P99 = p.trips(first[len(first)/2]), p.trips(first[len(first)*99/100])
	out.Rack.NewAndRead = p.trips(all[len(all)/2])
	return nil
}

// rekeys makes len(first) measurements; all has the same length. In each measurement, the client
// replaces the key of a region by REKEY, gets from the region's owner its own key, which is derived
// from the new one, and READs with that key. `first` gets the times of the REKEYs, `all` the times
// from the REKEY until the end of the READ. A REKEY that ends by TIMEOUT, because a host had no
// processor, is not measured, and another one follows.
func (p *soloRun) rekeys(ctx context.Context, first, all []time.Duration) (err error) {
	var ends [2]*socket.Client
	for i, host := range []string{p.on.to, p.on.hosts[0]} {
		if ends[i], err = socket.Open(ctx, rackfile.PathsOf(p.on.rack.Name).OneRMA(host)); err != nil {
			return withNode(err, host)
		}
		defer func() { err = errors.Join(err, ends[i].Close()) }()
	}
	owner, client := ends[0], ends[1]
	far, err := owner.Register(ctx, soloChunk, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	near, err := client.Register(ctx, soloChunk, verbs.LocalWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, near.Close()) }()
	use := func() (*socket.Remote, error) {
		g, err := far.Grant(ctx, client.Addr(), client.PID())
		if err != nil {
			return nil, err
		}
		return client.Use(ctx, owner.Addr(), g)
	}
	peer, err := use()
	for i, tries := 0, 0; i < len(all) && err == nil; {
		var key nic.Key
		binary.BigEndian.PutUint64(key[:], uint64(i+1))
		began := time.Now()
		err = client.Rekey(ctx, peer, key)
		first[i] = time.Since(began)
		var failed *host.StatusError
		timedOut := errors.As(err, &failed) && failed.Status == nic.Timeout
		if tries++; err != nil && (!timedOut || tries == 2*len(all)) {
			return err
		}
		old := peer
		if peer, err = use(); err != nil {
			return err
		}
		if err := old.Close(); err != nil {
			return err
		}
		if timedOut {
			continue // the region has the old key or the new one; peer has a key that is derived from it
		}
		if _, err = client.Read(ctx, socket.Transfer{Remote: peer, Length: soloBytes, Local: near}); err != nil {
			return err
		}
		all[i] = time.Since(began)
		i++
	}
	return err
}

// reconnects makes connections to the memory service of the server, and a READ over each. `first`
// gets the times until a connection is made, `all` the times until its READ has ended.
func (p *soloRun) reconnects(ctx context.Context, first, all []time.Duration) (err error) {
	client, err := p.on.openNIC(p.on.hosts[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	server, _, ok := p.on.rack.Host(p.on.to)
	if !ok {
		return fmt.Errorf("the rack has no host %s", p.on.to)
	}
	pd, err := client.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, soloChunk, verbs.LocalWrite)
	if err != nil {
		return err
	}
	cq, err := client.CreateCQ(1)
	if err != nil {
		return err
	}
	now := client.Runtime().Now
	for i := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1})
		if err != nil {
			return err
		}
		far, err := memservice.Dial(client.Manager(), qp, server.IPv4, rdmacm.Params{}, now().Add(soloKeyPatience))
		if err != nil {
			return errors.Join(err, qp.Destroy())
		}
		first[i] = time.Since(began)
		wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, soloBytes)}, RemoteAddr: far.Addr, RKey: far.RKey}
		err = qp.PostSend(wr)
		if err == nil {
			err = cq.Wait(now().Add(soloKeyPatience))
		}
		var wc [1]verbs.WC
		if err == nil {
			_, err = cq.Poll(wc[:])
		}
		if err == nil && wc[0].Status != verbs.Success {
			err = fmt.Errorf("READ by a new connection: %v", wc[0].Status)
		}
		all[i] = time.Since(began)
		if err := errors.Join(err, qp.Destroy()); err != nil {
			return err
		}
	}
	return nil
}
