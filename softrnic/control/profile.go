package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/pprof"
	"time"
)

// pathProfile is the path of the GET request that HandleProfile answers. The query parameter "for"
// says how long the profile is recorded.
const pathProfile = "/profile"

// Bounds of the time that a profile covers.
const (
	MinProfile = 100 * time.Millisecond
	MaxProfile = 10 * time.Minute
)

// CheckProfile returns an error if a profile cannot cover a time d.
func CheckProfile(d time.Duration) error {
	if d < MinProfile || d > MaxProfile {
		return fmt.Errorf("%v: want a time from %v to %.0fm", d, MinProfile, MaxProfile.Minutes())
	}
	return nil
}

// HandleProfile registers the request that records a CPU profile of this process. The daemons of
// hosts and of the switch answer this request; Client.Profile sends it. node is the name of the
// daemon's node, for the error. The header of the answer is sent when the recording has begun, and
// the profile when the recording has ended. A client that disconnects ends the recording.
func HandleProfile(m *Mux, node string) {
	m.HandleFunc("GET "+pathProfile, func(w http.ResponseWriter, r *http.Request) {
		lasting, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err == nil {
			err = CheckProfile(lasting)
		}
		if err != nil {
			WriteError(w, Errorf(http.StatusBadRequest, "time of a profile: %v", err))
			return
		}
		// A process records one profile at a time. The profile is collected here and not written to
		// the client as it grows, so that a slow client does not delay the recording.
		var profile bytes.Buffer
		if pprof.StartCPUProfile(&profile) != nil { // another recording is the only error
			WriteError(w, Errorf(http.StatusConflict, "a profile of %s is being recorded; wait until it ends", node))
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_ = http.NewResponseController(w).Flush() // fails if the client has gone, which ends the context, too
		select {
		case <-r.Context().Done():
		case <-time.After(lasting):
		}
		pprof.StopCPUProfile()
		if r.Context().Err() == nil {
			_, _ = w.Write(profile.Bytes()) // fails if the client has gone
		}
	})
}

// Profile records a CPU profile of the daemon for a time d, and returns it in the format of package
// runtime/pprof. If ctx ends before d has passed, the daemon ends the recording early, and Profile
// returns an error.
func (c *Client) Profile(ctx context.Context, d time.Duration) ([]byte, error) {
	body, err := c.Stream(ctx, http.MethodGet, pathProfile+"?"+url.Values{"for": {d.String()}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	profile, err := io.ReadAll(body)
	switch {
	case err != nil:
		return nil, c.explain(err)
	case len(profile) == 0: // the daemon is ending
		return nil, fmt.Errorf("%s: %w", c.path, ErrCutOff)
	}
	return profile, nil
}
