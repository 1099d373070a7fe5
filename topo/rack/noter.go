package rack

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/guests"
)

// noter writes a record to the log of a node for its process 1.
type noter func(level slog.Level, text string, attributes ...any)

// noterTo returns a noter that writes to out in the format that the rack's description says, with these
// attributes in each record. It reads the description at the first record: most nodes have none until they end.
func noterTo(out io.Writer, paths rackfile.Paths, attributes ...any) noter {
	logger := sync.OnceValue(func() *slog.Logger { return slog.New(guests.LogHandler(paths, out)).With(attributes...) })
	return func(level slog.Level, text string, attributes ...any) {
		logger().Log(context.Background(), level, text, attributes...)
	}
}
