package scenario

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// soloOp is a command in flight, with the values by which check judges its result.
type soloOp struct {
	cmd    nic.Command
	slot   int
	issued clock.Time
	target *soloHost
	region int
	spot   int // number of an area in the target's region
	at     int // offset in that area
	// granted is the target's region at the time when the command was made, and key the region's
	// key at that time. bad: true if the command has a wrong key on purpose.
	granted *nic.Region
	key     nic.Key
	bad     bool
	old     []byte // the bytes of the area before a WRITE
	data    []byte // the bytes of a WRITE
}

// soloClient is a process that issues commands.
type soloClient struct {
	host   *soloHost
	place  int // number among all processes of the rack, which decides which areas are this process's
	proc   *simnet.Proc
	portal *nic.Portal
	ops    [soloSlots]*soloOp
	// rest has the local bytes of each slot whose last command has failed. They must not change any
	// more.
	rest [soloSlots][]byte
	left int // commands that the process has not issued yet
}

// start starts the processes of a host: those that issue commands, and a soloCarrier if the plan
// has large transfers.
func (h *soloHost) start() {
	r := h.run
	for i := range r.plan.procs {
		r.pids++
		portal, err := h.nic.Open(r.pids, r.plan.slots)
		if err != nil {
			r.net.Stop(err)
			return
		}
		if i == 0 { // the other process polls the NIC
			if err := portal.Complete(h.ends, uint64(i*soloSlots*nic.CompletionLen)); err != nil {
				r.net.Stop(err)
				return
			}
		}
		c := &soloClient{host: h, place: h.index*soloProcs + i, portal: portal, left: r.plan.ops}
		c.proc = r.net.Go(fmt.Sprintf("%s/process%d", soloName(h.index), r.pids), false, func(p *simnet.Proc) { c.run(p) })
		h.procs = append(h.procs, c.proc)
		h.clients = append(h.clients, c)
	}
	if r.plan.bulk > 0 {
		if err := h.carry(); err != nil {
			r.net.Stop(err)
		}
	}
}

// crashed is called after a crash of this process's NIC. For each area that a WRITE of the process
// may still change, it sets the time until which that can happen (soloSpot.loose).
func (c *soloClient) crashed() {
	r := c.host.run
	for _, o := range c.ops {
		if o != nil && o.cmd.Op == onerma.Write {
			a := &o.target.areas[o.region][o.spot]
			a.writing, a.loose = nil, r.net.Now().Add(r.bound(false))
		}
	}
}

// run issues commands on its slots, with pauses, until the process has done all its operations.
func (c *soloClient) run(p *simnet.Proc) {
	r := c.host.run
	if c.host.epoch > 1 {
		r.sleep(p, 20*r.plan.rtt, "the end of commands of the earlier incarnation")
	}
	for c.left > 0 || c.busy() {
		for slot := 0; slot < r.plan.slots && c.left > 0; slot++ {
			if c.ops[slot] == nil && r.env.draw.chance(0.8) {
				c.left--
				if err := c.issue(slot); err != nil {
					r.stop("%s: %w", p.Name(), err)
					return
				}
			}
		}
		p.Park(c.patience(), "completions")
		if err := c.poll(); err != nil {
			r.stop("%s: %w", p.Name(), err)
			return
		}
	}
}

func (c *soloClient) busy() bool {
	return slices.ContainsFunc(c.ops[:], func(o *soloOp) bool { return o != nil })
}

// patience returns when the client must look at its commands again: when one of its commands in
// flight must have ended (see soloRun.bound), or when its pause before the next command ends,
// whichever is earlier. It returns clock.Never if there is neither.
func (c *soloClient) patience() clock.Time {
	r := c.host.run
	at := clock.Never
	if c.left > 0 {
		at = r.net.Now().Add(r.env.draw.span(1, 3*r.plan.rtt))
	}
	for _, o := range c.ops {
		if o != nil {
			at = clock.Min(at, o.issued.Add(r.bound(o.cmd.Op == onerma.Read)+1))
		}
	}
	return at
}

func (c *soloClient) issue(slot int) error {
	r, d := c.host.run, c.host.run.env.draw
	o := &soloOp{slot: slot, issued: r.net.Now(), target: r.hosts[(c.host.index+d.between(1, len(r.hosts)-1))%len(r.hosts)], region: d.IntN(soloRegions)}
	o.spot = c.place*soloSlots + slot
	if err := o.target.unchanged(o.region, o.spot); err != nil {
		return fmt.Errorf("before the next command: %w", err)
	}
	local := c.local(slot)
	if c.rest[slot] != nil && !bytes.Equal(c.rest[slot], local) {
		return fmt.Errorf("slot %d: local bytes have changed after the command had failed", slot)
	}
	c.rest[slot] = nil
	size := one(d, d.between(1, 64), 4096, d.between(1, 4096), 64*d.between(1, 16))
	o.at = d.IntN(soloArea - size + 1)
	o.granted = o.target.regions[o.region]
	o.key = o.granted.Key()
	op := one(d, onerma.Read, onerma.Write)
	o.cmd = nic.Command{
		Op: op, Class: uint8(d.IntN(2)), Length: size, Target: soloAddr(o.target.index), Remote: o.granted.ID(), Offset: uint64(o.spot*soloArea + o.at),
		Local: c.host.mine, LocalOffset: uint64(c.localAt(slot)), Tag: uint64(slot), Key: nic.NewCipher(c.grant(o, op)),
	}
	for i := range local {
		local[i] = byte(d.Uint32())
	}
	if op == onerma.Write {
		a := &o.target.areas[o.region][o.spot]
		o.old, o.data = slices.Clone(a.model), slices.Clone(local[:size])
		a.writing = o
	}
	now, _ := r.net.Begin(c.host.node)
	err := c.portal.Issue(now, &o.cmd)
	r.net.End(c.host.node)
	c.ops[slot] = o
	return err
}

// grant returns the key for a command: the right one, or, with the plan's probability badKeys, one
// for another process, NIC, operation or region.
func (c *soloClient) grant(o *soloOp, op onerma.Op) nic.Key {
	r, d := c.host.run, c.host.run.env.draw
	from, pid := soloAddr(c.host.index), c.portal.PID()
	if !d.chance(r.plan.badKeys) {
		return o.granted.Grant(from, pid, op)
	}
	o.bad = true
	switch d.IntN(4) {
	case 0:
		return o.granted.Grant(from, pid+1, op)
	case 1:
		return o.granted.Grant(soloAddr(o.target.index), pid, op)
	case 2:
		return o.granted.Grant(from, pid, onerma.Read+onerma.Write-op)
	}
	return o.target.regions[1-o.region].Grant(from, pid, op)
}

func (c *soloClient) localAt(slot int) int { return (c.place*soloSlots + slot) * soloArea }

func (c *soloClient) local(slot int) []byte { return c.host.local[c.localAt(slot):][:soloArea] }

// poll checks the commands that have ended, and that no command in flight has exceeded its bound.
func (c *soloClient) poll() error {
	var out [soloSlots]nic.Completion
	for _, x := range out[:c.portal.Poll(out[:])] {
		o := c.ops[x.Tag]
		if o == nil {
			return fmt.Errorf("a completion of slot %d without a command: %+v", x.Tag, x)
		}
		c.ops[x.Tag] = nil
		if err := c.check(o, &x); err != nil {
			return fmt.Errorf("%v of %d bytes that was issued at %v: %w", o.cmd.Op, o.cmd.Length, o.issued, err)
		}
	}
	r := c.host.run
	for _, o := range c.ops {
		if o == nil {
			continue
		}
		if took := r.net.Now().Sub(o.issued); took > r.bound(o.cmd.Op == onerma.Read) {
			return fmt.Errorf("%v of %d bytes that was issued at %v has not ended after %v", o.cmd.Op, o.cmd.Length, o.issued, took)
		}
	}
	return nil
}

// check checks the completion x of a command: its status, its times, and the bytes that it has
// moved.
func (c *soloClient) check(o *soloOp, x *nic.Completion) error {
	r := c.host.run
	r.ended[x.Status]++
	if took := r.net.Now().Sub(o.issued); x.TotalDelay != took || x.IssueDelay > x.TotalDelay || took > r.bound(o.cmd.Op == onerma.Read) {
		return fmt.Errorf("it ended after %v, says %v and %v, and may take %v", took, x.IssueDelay, x.TotalDelay, r.bound(o.cmd.Op == onerma.Read))
	}
	if err := c.checkStatus(o, x); err != nil {
		return err
	}
	local := c.local(o.slot)
	if x.Status != nic.OK {
		c.rest[o.slot] = slices.Clone(local)
	}
	if o.cmd.Op == onerma.Read {
		want := o.target.areas[o.region][o.spot].model[o.at:][:o.cmd.Length]
		if x.Status == nic.OK && !bytes.Equal(local[:o.cmd.Length], want) {
			return fmt.Errorf("it is OK and has other bytes than the target")
		}
		return nil
	}
	if x.Status == nic.Timeout {
		r.late++
	}
	return o.checkWrite(x.Status)
}

// checkStatus checks that a command may end with the status of x.
func (c *soloClient) checkStatus(o *soloOp, x *nic.Completion) error {
	p := c.host.run.plan
	changed := o.target.regions[o.region] != o.granted || o.granted.Key() != o.key
	switch {
	case o.bad && (x.Status == nic.OK || x.Status == nic.NACK || p.lossless && x.Status == nic.Timeout):
		return fmt.Errorf("it has a wrong key and ended as %v", x.Status)
	case !o.bad && x.Status == nic.RemoteAuthenticationFailure && !changed && !p.corrupt:
		return fmt.Errorf("it has the right key and ended as %v", x.Status)
	case !o.bad && p.lossless && x.Status == nic.Timeout:
		return fmt.Errorf("no message was lost and it ended as %v", x.Status)
	}
	return nil
}

// checkWrite checks the bytes of the target's area after a WRITE has ended with status s. It keeps
// the bytes that it finds, because no byte may change from now on.
func (o *soloOp) checkWrite(s nic.Status) error {
	a := &o.target.areas[o.region][o.spot]
	a.writing = nil
	got := o.target.memory[o.region][o.spot*soloArea:][:soloArea]
	want := slices.Clone(o.old)
	copy(want[o.at:], o.data)
	for i := range got {
		isOld, isNew := got[i] == o.old[i], got[i] == want[i]
		ok := isOld || isNew
		switch {
		case s == nic.OK:
			ok = isNew
		case o.bad || s == nic.NACK || s == nic.DispatchTimeout:
			ok = isOld
		}
		if !ok {
			return fmt.Errorf("it ended as %v and byte %d of the area is %#02x, before %#02x, written %#02x", s, i, got[i], o.old[i], want[i])
		}
	}
	copy(a.model, got)
	return nil
}

// manage starts a process that replaces keys of regions by REKEY, as often as the plan says.
func (r *soloRun) manage() {
	if r.plan.rekeys == 0 {
		return
	}
	r.net.Go("manager", false, func(p *simnet.Proc) {
		for range r.plan.rekeys {
			p.Park(r.net.Now().Add(r.env.draw.span(1, 20*r.plan.rtt)), "the next rekey")
			if err := r.rekey(p); err != nil {
				r.stop("manager: %w", err)
				return
			}
		}
	})
}

// rekey makes another NIC replace the key of a region by a REKEY command, and then checks which key
// the region has. If the NIC that has sent the command crashes, nothing is checked.
func (r *soloRun) rekey(p *simnet.Proc) error {
	d := r.env.draw
	from := r.hosts[d.IntN(len(r.hosts))]
	target := r.hosts[(from.index+1)%len(r.hosts)]
	region := target.regions[d.IntN(soloRegions)]
	r.pids++
	portal, err := from.nic.Open(r.pids, 1)
	if err != nil {
		return err
	}
	defer portal.Close()
	before, after := region.Key(), nic.Key{}
	for i := range after {
		after[i] = byte(d.Uint32())
	}
	now, _ := r.net.Begin(from.node)
	err = portal.Issue(now, &nic.Command{
		Op: onerma.Rekey, Length: onerma.KeyLen, Target: soloAddr(target.index), Remote: region.ID(), NewKey: after,
		Key: nic.NewCipher(region.Grant(soloAddr(from.index), r.pids, onerma.Rekey)),
	})
	r.net.End(from.node)
	if err != nil {
		return err
	}
	incarnation := from.nic
	var out [1]nic.Completion
	for until := now.Add(r.bound(false)); portal.Poll(out[:]) == 0; {
		if incarnation != from.nic {
			return nil
		}
		if r.net.Now() > until {
			return fmt.Errorf("REKEY has not ended after %v", r.bound(false))
		}
		p.Park(r.net.Now().Add(min(r.plan.rtt/16, max(1, until.Sub(r.net.Now())+1))), "the end of a rekey")
	}
	return r.checkRekey(out[0].Status, before, after, region)
}

func (r *soloRun) checkRekey(s nic.Status, before, after nic.Key, region *nic.Region) error {
	switch key := region.Key(); {
	case s == nic.OK && key != after:
		return fmt.Errorf("REKEY is OK and the key is another one")
	case s != nic.OK && s != nic.Timeout && key != before:
		return fmt.Errorf("REKEY ended as %v and the key is another one", s)
	case key != before && key != after:
		return fmt.Errorf("REKEY ended as %v and the key is neither of both", s)
	}
	return nil
}
