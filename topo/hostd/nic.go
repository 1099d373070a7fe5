package hostd

import (
	"cmp"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/mem"
)

// defaultTearPause is the longest pause of a torn copy if a request names none: long enough for a
// peer's next packet to arrive between the two parts of the copy.
const defaultTearPause = 20 * time.Microsecond

func (h *Host) setNIC(state string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.dev.Err(); err != nil {
		return control.Errorf(http.StatusConflict, "the NIC of %s has failed for good (%v); restart the host", h.self.Name, err)
	}
	up := h.nicUp()
	switch {
	case state != StateUp && state != StateDown:
		return control.Errorf(http.StatusBadRequest, "NIC state %q: want %s or %s", state, StateUp, StateDown)
	case up == (state == StateUp):
		return nil
	case state == StateDown:
		h.dev.Down()
		if h.solo != nil {
			h.solo.Crash()
		}
		h.app.nicGone()
		h.log.Info("NIC crashed")
		return nil
	}
	if h.solo != nil { // the 1RMA NIC first, because its start may fail: then both NICs stay down
		if err := h.solo.Up(); err != nil {
			return err
		}
	}
	h.dev.Up()
	h.applyTear()
	h.log.Info("NIC started")
	return h.app.nicBack()
}

func (h *Host) nicUp() (up bool) {
	h.dev.With(func(e *engine.Engine) { up = e.Tables.IsUp() })
	return up
}

// setTear installs the fault "torn copies". A probability of 0 ends it.
func (h *Host) setTear(t Tear) error {
	switch {
	case !(t.Probability >= 0 && t.Probability <= 1):
		return control.Errorf(http.StatusBadRequest, "probability %v: want 0 to 1", t.Probability)
	case t.Pause < 0 || t.For < 0:
		return control.Errorf(http.StatusBadRequest, "pause %v, for %v: cannot be negative", t.Pause, t.For)
	}
	t.Seed = cmp.Or(t.Seed, h.rack.Load().Seed)
	t.Pause = cmp.Or(t.Pause, defaultTearPause)
	h.stopTear()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tear = nil
	if t.Probability > 0 {
		h.tear = &t
		if t.For > 0 {
			plan := h.tear
			h.tearTimer = time.AfterFunc(t.For*time.Duration(h.rack.Load().Factor()), func() { h.endTear(plan) })
		}
	}
	h.applyTear()
	return nil
}

// endTear ends the torn copies of a plan whose time is over, unless another plan has replaced it.
func (h *Host) endTear(plan *Tear) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tear == plan {
		h.tear = nil
		h.applyTear()
	}
}

func (h *Host) stopTear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tearTimer != nil {
		h.tearTimer.Stop()
	}
}

// applyTear gives the present plan of torn copies to the NIC, which forgets it in a crash. The
// caller holds mu.
func (h *Host) applyTear() {
	var f mem.TearFunc
	if t := h.tear; t != nil {
		f = mem.SeededTear(t.Seed, t.Probability, t.Pause)
	}
	h.dev.With(func(e *engine.Engine) {
		if table := e.Tables.Mem(); table != nil {
			table.SetTear(f)
		}
	})
}

// installTears installs the torn copies that the rack file declares for this host.
func (h *Host) installTears() {
	for _, r := range h.rack.Load().Faults {
		if r.Kind != fault.Tear || r.Link != h.self.Name {
			continue
		}
		t := Tear{Probability: cmp.Or(r.Probability, 1), Seed: r.Seed, Pause: r.Delay, For: r.For}
		if err := h.setTear(t); err != nil {
			h.log.Error("rack file", "fault", r.ID, "error", err)
		}
	}
}
