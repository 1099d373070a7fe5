package guests

import (
	"io"
	"log/slog"

	"github.com/rdmalab/rdmalab/rackfile"
)

// LogHandler returns the handler by which a daemon writes its log to out, in the format that the rack's
// description says. Without a description that can be read it is text.
func LogHandler(paths rackfile.Paths, out io.Writer) slog.Handler {
	return (*Reader)(nil).LogHandler(paths, out)
}

// LogHandler is as the function LogHandler.
func (r *Reader) LogHandler(paths rackfile.Paths, out io.Writer) slog.Handler {
	if rack, err := r.Load(paths); err == nil && rack.LogJSON {
		return slog.NewJSONHandler(out, nil)
	}
	return slog.NewTextHandler(out, nil)
}
