package host

import (
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

type rekeying struct {
	done   bool
	status nic.Status
}

// Rekey replaces the key of a peer's region, for which the process must have been granted the
// right. Keys that were granted before are refused from then on, and new ones must be derived from
// k. The operation is not tried again: after nic.Timeout the region may have either key.
func (p *Process) Rekey(to *Remote, k nic.Key) error {
	var r *rekeying
	err := opError("REKEY", verbs.ErrClosed, "the process or its NIC has ended")
	p.nic.exclusive(func(now clock.Time) {
		if p.gone {
			return
		}
		if to.rekey == nil {
			err = opError("REKEY", verbs.ErrInvalid, "the remote memory has no key for this operation")
			return
		}
		if p.rekey != nil {
			err = opError("REKEY", verbs.ErrBusy, "the process has another REKEY in progress: wait for it")
			return
		}
		cmd := nic.Command{Op: onerma.Rekey, Length: onerma.KeyLen, Target: to.Addr, Remote: to.Region, Key: to.rekey, NewKey: k}
		if err = p.keys.Issue(now, &cmd); err == nil {
			r = new(rekeying)
			p.rekey = r
		}
	})
	if err != nil {
		return err
	}
	if err := p.nic.driver.Await(func() bool { return r.done || p.gone }, clock.Never); err != nil {
		return err
	}
	switch {
	case !r.done:
		return opError("REKEY", verbs.ErrClosed, "the process or its NIC has ended")
	case r.status != nic.OK:
		return &StatusError{Op: onerma.Rekey, Status: r.status, Length: onerma.KeyLen}
	}
	return nil
}

// collectRekey takes the completion of the process's REKEY, if there is one, and returns the number
// of completions.
func (p *Process) collectRekey() int {
	if p.rekey == nil {
		return 0
	}
	var out [1]nic.Completion
	k := p.keys.Poll(out[:])
	if k > 0 {
		p.rekey.done, p.rekey.status = true, out[0].Status
		p.rekey = nil
	}
	return k
}
