package serve

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A quota that the configuration leaves out has its documented default; one that it sets stays,
// except that the doorbells of a program must suffice: those of an unmodified program for its queue
// pairs, those of another one for its queues, too.
func TestDefaultsOfLimits(t *testing.T) {
	want := Limits{
		Clients: 64, PDs: 256, SRQs: 256, MWs: 256, DMs: 256, Memories: 256, MRs: 16384, CQs: 4096, QPs: 2048, AHs: 4096,
		Attachments: 512, Waits: 256, Bytes: 16 << 30, QueueBytes: 4 << 30, DeviceBytes: 1 << 62, SharedBytes: 16 << 30, Shared: 64, Reserve: 12,
		Manager: ManagerLimits{Listeners: 64, Requests: 64, IDs: 4096, Joins: 512, Events: 16384, Channels: 65536},
	}
	if got := (Limits{}).withDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	small := Limits{
		Clients: 1, PDs: 2, SRQs: 3, MWs: 4, DMs: 5, Memories: 6, MRs: 7, CQs: 8, QPs: 9, AHs: 10, Attachments: 11, Waits: 12, Bytes: 13,
		QueueBytes: 14, DeviceBytes: 15, SharedBytes: 16, Shared: 17, Reserve: -1, ReservedDevice: 18, Manager: ManagerLimits{1, 2, 3, 4, 5, 6},
	}
	if got := small.withDefaults(); got != small {
		t.Errorf("%+v, want %+v", got, small)
	}
	large := Limits{CQs: 1 << 30, QPs: 1 << 30, SRQs: 1 << 30}.withDefaults()
	if large.QPs != ring.MaxBells-1 || large.CQs != 1<<30 || large.SRQs != 1<<30 {
		t.Errorf("an unmodified program: %d queue pairs, %d completion queues, %d shared receive queues", large.QPs, large.CQs, large.SRQs)
	}
	if large = large.belled(); large.QPs != ring.MaxBells/2 || large.CQs != ring.MaxBells/4 || large.SRQs != ring.MaxBells/8 {
		t.Errorf("%d queue pairs, %d completion queues, %d shared receive queues of %d doorbells", large.QPs, large.CQs, large.SRQs, ring.MaxBells)
	}
}

// A quota that is exhausted refuses, and what is given
// back can be taken again. Of several needs, all are counted or none.
func TestQuotasOfAProgram(t *testing.T) {
	l := Limits{PDs: 2, Bytes: 100, QueueBytes: 10}.withDefaults()
	var nic pool
	nic.open(engine.Limits{PDs: 1000, MRs: 1000}, l)
	o := &objects{limits: &l, pool: &nic}
	pd, bytes := need{kindPD, 1}, func(n int64) need { return need{kindMapped, n} }
	for i, c := range []struct {
		needs []need
		ok    bool
	}{
		{[]need{bytes(101)}, false},
		{[]need{bytes(-1)}, false},
		{[]need{bytes(99)}, true},
		{[]need{pd, bytes(2)}, false}, // nor the PD
		{[]need{pd, bytes(1)}, true},
		{[]need{pd}, true},
		{[]need{bytes(0)}, true},
		{[]need{pd}, false},
	} {
		if err := o.take("op", c.needs...); (err == nil) != c.ok {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if o.counts[kindPD] != 2 || o.counts[kindMapped] != 100 || nic.free[tablePD] != nic.size[tablePD]-2 {
		t.Errorf("%d PDs, %d bytes; %d PDs of %d are free", o.counts[kindPD], o.counts[kindMapped], nic.free[tablePD], nic.size[tablePD])
	}
	o.release(pd, bytes(100))
	if o.counts[kindPD] != 1 || o.counts[kindMapped] != 0 || o.take("op", pd, bytes(100)) != nil {
		t.Errorf("%d PDs, %d bytes after the return of one and all", o.counts[kindPD], o.counts[kindMapped])
	}
	if o.releaseAll(); o.counts != [kinds]int64{} || nic.free != nic.size {
		t.Errorf("at the end %v are counted", o.counts)
	}
}

// The attributes that a program sees are no larger than what it may have: its quota, or half of
// what all programs may have together.
func TestDeviceAsAProgramSeesIt(t *testing.T) {
	nic := engine.Limits{QPs: 100, SRQs: 1000, AHs: 40, Attachments: 8, DeviceMemory: 4096}
	l := Limits{Reserve: -1, QPs: 80, SRQs: 30, AHs: 1000, ReservedDevice: 96}.withDefaults()
	var p pool
	p.open(nic, l)
	whole := verbs.DeviceAttr{MaxQP: 100, MaxSRQ: 1000, MaxAH: 40, GroupLimits: verbs.GroupLimits{MaxAttachments: 8}, MaxDM: 4096, MaxSGE: 16}
	d := p.bound(whole, &l)
	if d.MaxQP != 50 || d.MaxSRQ != 30 || d.MaxAH != 20 || d.MaxAttachments != 4 || d.MaxDM != 2000 {
		t.Errorf("%+v", d)
	}
	if d.MaxSGE != whole.MaxSGE {
		t.Errorf("another attribute has changed: %+v", d)
	}
}
