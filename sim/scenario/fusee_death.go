package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// maxDeaths bounds the clients that die in one run. Each of them has a host for itself, because the
// host fails with it.
const maxDeaths = 2

// tableDeath is the death of a client: the applications of its host end, and with nic also the NIC.
type tableDeath struct {
	client int
	// The client dies when its host has sent request number `after` of the kind `when`, and then
	// the time `late` has passed.
	when  treeMoment
	after int
	late  time.Duration
	// nic: true if the NIC dies too. Otherwise it may still execute the requests posted before.
	nic bool
	// blow: true if the client dies at a stage of a returning memory server (see tableBlow). Then
	// when, after and late are not used.
	blow bool
}

func (x *tableDeath) String() string {
	what := "dies"
	if x.nic {
		what = "dies with its NIC"
	}
	if x.blow {
		return fmt.Sprintf("client %d %s by a blow", x.client, what)
	}
	return fmt.Sprintf("client %d %s %v after it has sent %d %s", x.client, what, x.late, x.after, treeMoments[x.when])
}

// drawDeaths draws the lease after which clients take each other for dead, and which clients die.
func (p *tablePlan) drawDeaths(d *draw) {
	if p.lease = d.span(2*time.Millisecond, 60*time.Millisecond); d.chance(0.35) {
		return
	}
	for n := d.between(1, min(maxDeaths, p.clients-1)); len(p.deaths) < n; {
		x := tableDeath{client: len(p.deaths), when: one(d, atAnything, atAnything, atLock, atWrite), nic: d.chance(0.3)}
		if x.after = d.between(1, 200); x.when == atLock {
			x.after = d.between(1, 60)
		}
		if d.chance(0.4) {
			x.late = d.span(0, 20*time.Microsecond)
		}
		p.deaths = append(p.deaths, x)
	}
}

// hostOf returns the name of a client's host: a client that dies has one for itself.
func (p *tablePlan) hostOf(id int) string {
	if id < len(p.deaths) {
		return fmt.Sprintf("cn%d", computeHosts+id)
	}
	return fmt.Sprintf("cn%d", id%computeHosts)
}

// arm makes the run watch all packets, and kill each client of the plan's deaths when the death's
// moment has come. It leaves out the clients that die when a memory server that comes back reaches
// a stage (tableBlow): await kills them.
func (r *tableRun) arm() {
	if len(r.plan.deaths) == 0 {
		return
	}
	var list []*treeTrigger
	for _, x := range r.plan.deaths {
		if x.blow {
			continue
		}
		host := r.plan.hostOf(x.client)
		list = append(list, &treeTrigger{host: host, when: x.when, left: x.after, fire: func() {
			rack := r.env.rack
			rack.At(rack.Now().Add(x.late), func() { r.kill(x) })
		}})
	}
	r.env.spy = func(ev *simnet.Event) {
		for _, t := range list {
			t.see(ev)
		}
	}
}

// kill makes the client die as the death x says.
func (r *tableRun) kill(x tableDeath) {
	if h := r.env.rack.Host(r.plan.hostOf(x.client)); x.nic {
		h.Crash()
	} else {
		h.CrashApps()
	}
	r.gone[x.client] = true
}

// vigil, plus two leases of the clients, is how long a master may take to recover all dead clients.
// It is long because a memory server may crash in this time.
const vigil = 5 * time.Second

// buryPatience bounds how long the last client takes to recover the blocks of all other clients,
// buryAttempt how long one of its attempts takes.
const (
	buryPatience = time.Minute
	buryAttempt  = 10 * time.Second
)

// bury starts one more client. When all other clients have ended or died, this client recovers the
// blocks that they own, so that no block has an owner at the end. If plan.vigil is true, the master
// must have done that before: a block that still has an owner is an error.
func (r *tableRun) bury() {
	h := r.env.rack.Host("cn0")
	r.env.client(h.Spec.Name, "undertaker", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		for len(r.gone) < r.plan.clients {
			rt.Sleep(time.Millisecond)
		}
		if r.plan.vigil {
			rt.Sleep(vigil + 2*cmp.Or(r.plan.clientLease, 10*time.Second))
		}
		end := rt.Now().Add(buryPatience)
		c, err := fusee.Open(r.plan.config(r.config(h, ctx)), end)
		if err != nil {
			return err
		}
		for {
			owners, err := c.RecoverAll(min(end, rt.Now().Add(buryAttempt)))
			if errors.Is(err, kv.ErrTimeout) && rt.Now() < end { // a server that crashed during the attempt never answers
				continue
			}
			// The members are not settled: a master changes them.
			if err == nil && len(owners) == 0 && !r.steady() && rt.Now() < end {
				rt.Sleep(time.Millisecond)
				continue
			}
			if err != nil || len(owners) == 0 {
				return errors.Join(err, c.Close())
			}
			if r.plan.vigil {
				return errors.Join(fmt.Errorf("the master has not recovered the clients with the numbers %v", owners), c.Close())
			}
			r.env.note("the clients with the numbers %v owned blocks", owners)
		}
	})
}
