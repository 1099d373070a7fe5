package hard

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// Config describes a Machine. The zero value of each field is its default.
type Config struct {
	// Segments is how many changes of place a row can look back on, Window how many requests it remembers to answer
	// duplicates; 0: 128 each.
	Segments, Window int
	// Held is how many packets may be held in all, HeldPerRow of one row; 0: 1024 and 256.
	Held, HeldPerRow int
	// OwnOps is how many operations on words or under new keys a row may have outstanding on its own connection; 0: 128.
	OwnOps int
	// HoldTime is after how long a held packet is given up; the client will send it again. 0: 2 s.
	HoldTime time.Duration
	// RedoTime is how long answers wait behind a READ that is executed again; 0: 1 ms.
	RedoTime time.Duration
	// Shared bounds the shared connections, Words the words. Words.Budget is also how long a request on an own
	// connection may still reach the server.
	Shared shared.Config
	Words  words.Config

	// Moving is called before the first request of a row moves. From then on the row cannot live without the switch. False
	// keeps it on its own connection. nil: always true.
	Moving func(r *conntrack.Row) bool
	// Answered is called with the PSN of a moved row's oldest request that the server has not answered, before an answer
	// leaves for its client. nil: nobody wants to know.
	Answered func(r *conntrack.Row, oldest wire.PSN)
	// Failed is called when a shared connection cannot be used any more. A new one is to be attached. nil: nobody makes one.
	Failed func(c *pipeline.Ctx, k dial.Key, generation uint32, why string)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v *int
		n int
	}{{&c.Segments, 128}, {&c.Window, 128}, {&c.Held, 1024}, {&c.HeldPerRow, 256}, {&c.OwnOps, 128}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
	if c.HoldTime <= 0 {
		c.HoldTime = 2 * time.Second
	}
	if c.RedoTime <= 0 {
		c.RedoTime = time.Millisecond
	}
	if c.Words.Budget == 0 {
		c.Words.Budget = 5 * time.Second
	}
	if c.Moving == nil {
		c.Moving = func(*conntrack.Row) bool { return true }
	}
	if c.Answered == nil {
		c.Answered = func(*conntrack.Row, wire.PSN) {}
	}
	if c.Failed == nil {
		c.Failed = func(*pipeline.Ctx, dial.Key, uint32, string) {}
	}
	return c
}
