package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/rackapi"
	"github.com/rdmalab/rdmalab/topo/top"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

func topCmd() *cobra.Command {
	var once bool
	var url string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show a rack live on a full screen; keys inject faults",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			view, end, err := topView(cmd, url)
			if err != nil {
				return err
			}
			defer end()
			if once {
				return topOnce(cmd, view)
			}
			if err := drawable(); err != nil {
				return err
			}
			view.In, view.Out = os.Stdin, os.Stdout
			return live.Run(cmd.Context(), view)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one screen without colours, after a second, and end")
	cmd.Flags().StringVar(&url, "url", "", "show the rack of this page of rdmalab web, which may be on another machine, like http://192.0.2.7:8780; keys do not change that rack")
	return cmd
}

// topView returns the view of the rack, or of the page at an address. The caller calls end.
func topView(cmd *cobra.Command, url string) (view live.Config, end func(), err error) {
	view, end = live.Config{Style: terminalStyle(), Sample: live.Sample}, func() {}
	if url == "" {
		r, err := openRack(cmd)
		if err != nil {
			return view, end, err
		}
		view.Rack = r.Spec.Name
		if view.Program, err = os.Executable(); err != nil {
			return view, end, err
		}
		if view.Rack != defaultRack || os.Getenv(rackEnv) != "" {
			view.RackFlag = []string{"--rack", view.Rack}
		}
		return view, end, nil
	}
	if cmd.Flags().Changed("rack") {
		return view, end, badUse("--url is the page of one rack: leave out --rack")
	}
	client, err := rackapi.NewClient(url)
	if err != nil {
		return view, end, badUse("--url: %w", err)
	}
	first, err := client.Rack(cmd.Context())
	if err != nil {
		client.Close()
		return view, end, err
	}
	view.Rack, view.Sample = first.Name, live.Remote(client)
	view.ReadOnly = "top --url only shows: change the rack on its machine, or by its page (`rdmalab web --control`)"
	return view, client.Close, nil
}

// drawable returns an error if input or output is no terminal on which a screen can be drawn.
func drawable() error {
	const instead = "; `rdmalab top --once` prints one screen, and `rdmalab status`, `rdmalab counters` and `rdmalab faults` have all of it"
	switch kind := os.Getenv("TERM"); {
	case !isTerminal(os.Stdout) || !isTerminal(os.Stdin):
		return badUse("top draws on a terminal, and reads keys from it" + instead)
	case kind == "" || kind == "dumb":
		return fmt.Errorf("top needs a terminal that can move its cursor, and TERM is %q: try TERM=xterm if yours can%s", kind, instead)
	}
	return nil
}

// terminalStyle returns the capabilities of the terminal, as the environment describes them.
func terminalStyle() top.Style {
	locale := os.Getenv("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = os.Getenv(name)
		}
	}
	utf8 := strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
	return top.Style{Plain: os.Getenv("NO_COLOR") != "", ASCII: !utf8}
}

func topOnce(cmd *cobra.Command, view live.Config) error {
	view.Style.Plain = true
	first := view.Sample(cmd.Context(), view.Rack)
	if pause(cmd.Context(), time.Second) != nil {
		return errInterrupted
	}
	second := view.Sample(cmd.Context(), view.Rack)
	if second.Gone != "" {
		return errors.New(second.Gone)
	}
	return say(cmd, "%s", top.Print(view.Style, &first, &second))
}
