package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Lines of progress are for a user who waits. How many there are depends on how fast the machine is
// at the moment. So a command writes them to standard error only if that is a terminal: what a pipe,
// a file, a script or a page of the documents gets is the same on a busy machine as on an idle one.

// progressTo returns the writer of a command's progress, or nil if it writes none.
func progressTo(cmd *cobra.Command, quiet bool) io.Writer {
	f, ok := cmd.ErrOrStderr().(*os.File)
	if quiet || !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// pace writes lines of progress, at most one in each interval `every`, the first one interval after
// the start.
type pace struct {
	w     io.Writer // nil: no lines
	every time.Duration
	begun time.Time
	last  time.Time
}

func newPace(cmd *cobra.Command, quiet bool, every time.Duration) *pace {
	now := time.Now()
	return &pace{progressTo(cmd, quiet), every, now, now}
}

func (p *pace) tell(format string, args ...any) {
	if p.w == nil || time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	_, _ = fmt.Fprintf(p.w, format+"\n", args...) // progress may be lost
}

// done tells how many of total are done, and about how long the others will take: as long as those that
// are done, each.
func (p *pace) done(what string, n, total int) {
	p.tell("%s: %d of %d%s", what, n, total, ahead(time.Since(p.begun), n, total))
}

// ahead returns the rate and the time left of work of which n of total are done after some time, as ", 120/s,
// 8s left"; "" if there is nothing to say.
func ahead(took time.Duration, n, total int) string {
	if n <= 0 || n >= total || took < time.Second {
		return ""
	}
	rate := float64(n) / took.Seconds()
	left := time.Duration(float64(total-n) / rate * float64(time.Second)).Round(time.Second)
	if rate < 1 {
		return fmt.Sprintf(", %v each, %v left", (took / time.Duration(n)).Round(time.Second/10), left)
	}
	return fmt.Sprintf(", %.0f/s, %v left", rate, left)
}

// quietFlag adds the flag --quiet.
func quietFlag(cmd *cobra.Command, quiet *bool) {
	cmd.Flags().BoolVarP(quiet, "quiet", "q", false, "print no progress on standard error, where only a terminal gets any")
}
