package handler

import (
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// NoRequests has the methods of a Machine that changes no requests of flows, because its rules
// select frames, or only observe requests. The machine embeds it.
type NoRequests struct{}

// Request forwards a request. The program never calls it.
func (NoRequests) Request(*pipeline.Ctx, conntrack.Seen, *rules.Rule, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Forward()
}

// Response forwards a response.
func (NoRequests) Response(*pipeline.Ctx, conntrack.Seen, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Forward()
}

// Closed does nothing: the machine keeps no state of flows.
func (NoRequests) Closed(*pipeline.Ctx, *conntrack.Flow) {}
