package guests

import (
	"fmt"
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
	return handler(r.LogsJSON(paths), out)
}

func handler(asJSON bool, out io.Writer) slog.Handler {
	if asJSON {
		return slog.NewJSONHandler(out, nil)
	}
	return slog.NewTextHandler(out, nil)
}

// LogsJSON reports whether the daemons of the rack write their logs as JSON.
func (r *Reader) LogsJSON(paths rackfile.Paths) bool {
	rack, err := r.Load(paths)
	return err == nil && rack.LogJSON
}

// LogPanic writes a panic of a host that was recovered to the host's log in its format: in JSON the stack is an
// attribute of the record, in text it follows the record line by line, as Go prints it.
func (r *Reader) LogPanic(paths rackfile.Paths, host string, out io.Writer, text string, value any, stack string) error {
	rack, err := r.Load(paths)
	asJSON := err == nil && rack.LogJSON
	logger := slog.New(handler(asJSON, out)).With("panic", fmt.Sprint(value), "host", host)
	if asJSON {
		logger = logger.With("rack", rack.Name)
		logger.Error(text, "stack", stack)
		return nil
	}
	logger.Error(text)
	_, err = fmt.Fprintln(out, stack)
	return err
}
