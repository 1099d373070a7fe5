package engine

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// Objects counts what exists on a NIC.
type Objects struct {
	PDs  int `json:"pds"`
	MRs  int `json:"mrs"`
	CQs  int `json:"cqs"`
	QPs  int `json:"qps"`
	AHs  int `json:"ahs"`
	SRQs int `json:"srqs"`
	MWs  int `json:"mws"`
	DMs  int `json:"dms"`
	// Bytes is the registered memory.
	Bytes uint64 `json:"bytes"`
}

// Objects returns the counts for status output.
func (e *Engine) Objects() Objects {
	o := Objects{
		PDs: len(e.pds), MRs: len(e.mrs), CQs: len(e.cqs), QPs: len(e.qps),
		AHs: len(e.ahs), SRQs: len(e.srqs), MWs: len(e.mws), DMs: len(e.dms),
	}
	for mr := range e.mrs {
		o.Bytes += uint64(mr.region.Len())
	}
	return o
}

// QPs lists all queue pairs in the order of their creation.
func (e *Engine) QPs() []verbs.QPAttr {
	out := make([]verbs.QPAttr, 0, len(e.order))
	for _, qp := range e.order {
		out = append(out, qp.q.Query())
	}
	return out
}
