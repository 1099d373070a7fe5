package host

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// acceptPause is the pause after an error of accept that may be temporary, such as a lack of file
// descriptors.
const acceptPause = 100 * time.Millisecond

// AcceptAll calls serve with each connection that accept returns, until its listener is closed.
// After any other error it pauses, and goes on. what says in the log what the connections are for.
func AcceptAll[C net.Conn](accept func() (C, error), log *slog.Logger, what string, serve func(C)) {
	for {
		c, err := accept()
		switch {
		case err == nil:
			serve(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			log.Warn("1RMA: no connection for "+what, "error", err)
			time.Sleep(acceptPause)
		}
	}
}
