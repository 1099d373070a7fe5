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

// AcceptAll calls serve with each connection that accept returns, until the listener is closed.
// After any other error of accept it logs the error, pauses, and goes on. The log names the purpose
// of the connections by the text in what.
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
