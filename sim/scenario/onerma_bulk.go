package scenario

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// soloCarrier is a process that moves large amounts of bytes by an executor, which splits a
// transfer into many commands.
type soloCarrier struct {
	host   *soloHost
	exec   *executor.Executor
	portal *nic.Portal
}

// carry starts a soloCarrier, a process for large transfers, on the host.
func (h *soloHost) carry() error {
	r := h.run
	r.pids++
	portal, err := h.nic.Open(r.pids, 16)
	if err != nil {
		return err
	}
	exec, err := executor.New(executor.Config{RTT: r.plan.rtt, First: one(r.env.draw, 0.0, 4, 15)}, portal)
	if err != nil {
		return err
	}
	h.machine.Add(exec)
	c := &soloCarrier{host: h, exec: exec, portal: portal}
	h.procs = append(h.procs, r.net.Go(fmt.Sprintf("%s/carrier%d", soloName(h.index), r.pids), false, func(p *simnet.Proc) {
		if err := c.run(p); err != nil {
			r.stop("%s: %w", p.Name(), err)
		}
	}))
	return nil
}

// run makes one large transfer after the other.
func (c *soloCarrier) run(p *simnet.Proc) error {
	r, d := c.host.run, c.host.run.env.draw
	if c.host.epoch > 1 {
		r.sleep(p, 20*r.plan.rtt, "the end of transfers of the earlier incarnation")
	}
	for range r.plan.bulk {
		target := r.hosts[(c.host.index+d.between(1, len(r.hosts)-1))%len(r.hosts)]
		if err := c.one(p, target, d.IntN(soloRegions), one(d, onerma.Read, onerma.Write)); err != nil {
			return err
		}
	}
	return nil
}

// one makes one large transfer, and checks which bytes have moved and whether it ended in time.
func (c *soloCarrier) one(p *simnet.Proc, target *soloHost, region int, op onerma.Op) error {
	r, d := c.host.run, c.host.run.env.draw
	at, n := soloSize+c.host.index*soloBulk, d.between(1, soloBulk)
	local, remote := c.host.local[at:][:soloBulk], target.memory[region][at:][:soloBulk]
	for i := range local {
		local[i] = byte(d.Uint32())
	}
	old, data := slices.Clone(remote), slices.Clone(local)
	granted, key := target.regions[region], target.regions[region].Key()
	begun := r.net.Now()
	t := executor.Transfer{
		Op: op, Class: uint8(d.IntN(2)), Target: soloAddr(target.index), Remote: granted.ID(), Offset: uint64(at), Length: n, Local: c.host.mine, LocalOffset: uint64(at),
		Key: nic.NewCipher(granted.Grant(soloAddr(c.host.index), c.portal.PID(), op)), Deadline: begun.Add(d.span(10*r.plan.rtt, 300*r.plan.rtt)), Once: d.chance(0.2),
	}
	now, _ := r.net.Begin(c.host.node)
	err := c.exec.Start(now, t)
	r.net.End(c.host.node)
	if err != nil {
		return err
	}
	c.swap()
	var out [1]executor.Result
	for until := t.Deadline.Add(r.bound(false)); c.exec.Results(out[:]) == 0; {
		if r.net.Now() > until {
			return fmt.Errorf("%v of %d bytes has not ended %v after its deadline", op, n, r.bound(false))
		}
		p.Park(min(until+1, max(t.Deadline, r.net.Now())+clock.Time(r.plan.rtt)), "the end of a transfer")
	}
	r.moved[out[0].Status]++
	changed := target.regions[region] != granted || granted.Key() != key
	if out[0].Status == nic.RemoteAuthenticationFailure && !changed && !r.plan.corrupt {
		return fmt.Errorf("%v of %d bytes has the right key and ended as %v", op, n, out[0].Status)
	}
	if (out[0].Status == nic.OK) != (out[0].Moved == n) {
		return fmt.Errorf("%v of %d bytes: %+v", op, n, out[0])
	}
	if op == onerma.Read {
		if out[0].Status == nic.OK && !bytes.Equal(local[:n], remote[:n]) || !bytes.Equal(old, remote) {
			return fmt.Errorf("READ of %d bytes is %v and has other bytes than the target", n, out[0].Status)
		}
		return nil
	}
	for i := range remote {
		isOld, isNew := remote[i] == old[i], i < n && remote[i] == data[i]
		if !isNew && (!isOld || out[0].Status == nic.OK && i < n) {
			return fmt.Errorf("WRITE of %d bytes ended as %v and byte %d is %#02x, before %#02x, written %#02x", n, out[0].Status, i, remote[i], old[i], data[i])
		}
	}
	return c.steady(p, remote)
}

// steady checks that the target bytes of a WRITE that has ended do not change for a random time.
func (c *soloCarrier) steady(p *simnet.Proc, remote []byte) error {
	r := c.host.run
	after := slices.Clone(remote)
	r.sleep(p, r.env.draw.span(1, 20*r.plan.rtt), "the next transfer")
	if !bytes.Equal(after, remote) {
		return fmt.Errorf("bytes have changed after the end of a WRITE")
	}
	return nil
}

// swap replaces the policy of congestion control at a random time of every other transfer.
func (c *soloCarrier) swap() {
	r, d := c.host.run, c.host.run.env.draw
	if !d.chance(0.5) {
		return
	}
	name := one(d, executor.Policies()...)
	r.net.At(r.net.Now().Add(d.span(0, 20*r.plan.rtt)), func() {
		now, _ := r.net.Begin(c.host.node)
		defer r.net.End(c.host.node)
		if err := c.exec.Use(now, name); err != nil {
			r.stop("policy %s: %w", name, err)
		}
	})
}
