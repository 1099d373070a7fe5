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
	last  time.Time
}

func newPace(cmd *cobra.Command, quiet bool, every time.Duration) *pace {
	return &pace{progressTo(cmd, quiet), every, time.Now()}
}

func (p *pace) tell(format string, args ...any) {
	if p.w == nil || time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	_, _ = fmt.Fprintf(p.w, format+"\n", args...) // progress may be lost
}

// quietFlag adds the flag --quiet.
func quietFlag(cmd *cobra.Command, quiet *bool) {
	cmd.Flags().BoolVarP(quiet, "quiet", "q", false, "print no progress on standard error, where only a terminal gets any")
}
