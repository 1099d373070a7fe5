package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
)

// A host that hangs answers nothing. start waits for it only for StartLimit, warns, and goes on with
// the next host; if it is the first host, start fails.
func TestStartBesideAHostThatHangs(t *testing.T) {
	for hung, fails := range map[string]bool{"cn1": false, "cn0": true} {
		synctest.Test(t, func(t *testing.T) {
			var warnings strings.Builder
			var asked []string
			c := &Call{
				Context: t.Context(), Store: &Store{Name: "x"}, Err: &warnings, Free: func() error { return nil },
				Rack: &rackfile.Rack{Hosts: []rackfile.Host{{Name: "cn0", Role: rackfile.Compute}, {Name: "cn1", Role: rackfile.Compute}, {Name: "cn2", Role: rackfile.Compute}, {Name: "ms0", Role: rackfile.Memory}}},
			}
			c.Ask = func(ctx context.Context, host, _ string, _, out any) error {
				asked = append(asked, host)
				if host == hung {
					<-ctx.Done()
					return ctx.Err()
				}
				*out.(*string) = host
				return nil
			}
			began := time.Now()
			info, err := StartHosts[string](c, "table", func([]string, bool) any { return nil })
			if took := time.Since(began); took != c.Store.StartLimit() {
				t.Errorf("%s hangs: start took %v", hung, took)
			}
			if text := warnings.String() + fmt.Sprint(err); !strings.Contains(text, "may still be starting its part of the store") {
				t.Errorf("%s hangs: %s", hung, text)
			}
			if errors.Is(err, context.DeadlineExceeded) != fails || !fails && (info != "cn0" || len(asked) != 3 || !strings.Contains(warnings.String(), "host cn1 does not know the table")) {
				t.Errorf("%s hangs: %q, %v, asked %v: %s", hung, info, err, asked, warnings.String())
			}
		})
	}
}
