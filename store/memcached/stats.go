package memcached

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/store/memcached/text"
)

// counts are the counters of a server that has run since began: commands, connections that are open
// (conns) and all that there were (allConns). They do not include GETs that a NIC answers.
type counts struct {
	gets, hits, sets, flushes atomic.Uint64
	conns, allConns           atomic.Int64
	began                     time.Time
}

// stats executes the command stats, which has no arguments here. In memcached, arguments select
// listings of things that this server does not have.
func (x *executor) stats(r *text.Request) {
	if len(r.Args) > 0 {
		x.line(text.Unknown)
		return
	}
	c, now := x.count, time.Now()
	gets, hits := c.gets.Load(), c.hits.Load()
	for _, s := range []struct {
		name string
		n    uint64
	}{
		{"pid", uint64(os.Getpid())},
		{"uptime", uint64(now.Sub(c.began) / time.Second)},
		{"time", uint64(now.Unix())},
		{"version", 0},
		{"curr_connections", uint64(c.conns.Load())},
		{"total_connections", uint64(c.allConns.Load())},
		{"cmd_get", gets},
		{"cmd_set", c.sets.Load()},
		{"cmd_flush", c.flushes.Load()},
		{"get_hits", hits},
		{"get_misses", gets - min(gets, hits)},
		{"curr_items", uint64(x.t.Keys())},
		{"max_items", uint64(x.t.MaxKeys())},
		{"item_size_max", uint64(x.t.MaxValue())},
	} {
		value := strconv.FormatUint(s.n, 10)
		if s.name == "version" {
			value = version
		}
		x.out = text.AppendStat(x.out, s.name, value)
	}
	x.line(text.End)
}
