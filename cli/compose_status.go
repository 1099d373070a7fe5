package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// shownEvents is how many of a container's last events a table shows.
const shownEvents = 4

func printContainers(w io.Writer, s rack.Status, now time.Time) error {
	if s.Runtime != rack.RuntimeDocker {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONTAINER\tSTATE\tPLUG\tNIC\tPLUGGED\tSEEN")
	for i := range s.Hosts {
		c := s.Hosts[i].Container
		if c == nil {
			continue
		}
		name, state := c.Name, c.State
		if name == "" {
			name, state = "- ("+s.Hosts[i].Name+")", "none"
		}
		if c.State == "exited" {
			state = fmt.Sprintf("exited (%d)", c.ExitCode)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, state, c.Plug, either(c.Plugged, "yes", "no"), times(c.Plugs), seenText(c, now))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Watcher != "" {
		_, err := fmt.Fprintln(w, "\nwatcher:", s.Watcher)
		return err
	}
	return nil
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func seenText(c *rack.ContainerStatus, now time.Time) string {
	var words []string
	for _, e := range c.Seen {
		words = append(words, e.What+" "+age(now, e))
	}
	words = words[max(0, len(words)-shownEvents):]
	if c.Error != "" {
		words = append(words, c.Error)
	}
	return strings.Join(words, ", ")
}

func age(now time.Time, e container.Seen) string {
	d := max(0, now.Sub(e.When))
	if d < time.Second {
		return "now"
	}
	if d >= time.Hour {
		return d.Round(time.Hour).String()
	}
	return d.Round(time.Second).String()
}
