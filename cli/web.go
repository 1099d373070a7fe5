package cli

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/topo/crashlog"
	"github.com/rdmalab/rdmalab/topo/web"
)

// defaultWeb is the address of the page.
const defaultWeb = "127.0.0.1:8780"

func webCmd() *cobra.Command {
	var listen, logFormat string
	var control bool
	var hosts []string
	cmd := &cobra.Command{
		Use:        "web",
		Short:      "Show a rack live in a browser; with --control, inject faults there",
		SuggestFor: []string{"ui", "dashboard", "browser"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			log, err := newLog(cmd.ErrOrStderr(), logFormat)
			if err != nil {
				return err
			}
			if logFormat == logJSON && !crashlog.Supervised() {
				return supervise("rack", name, "process", cmd.Name())
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			l, err := listenOn(listen)
			if err != nil {
				return err
			}
			cfg := web.Config{
				Rack: name, Version: readVersion().Version, Program: program, Hosts: hosts, Log: log,
			}
			if name != defaultRack || os.Getenv(rackEnv) != "" {
				cfg.RackFlag = []string{"--rack", name}
			}
			address := "http://" + l.Addr().String() + "/"
			if control {
				cfg.Token = web.NewToken()
				address += "#token=" + cfg.Token // a browser does not send this part of an address
			}
			if !slices.Contains(racksUp(), name) {
				log.Warn("the rack is not up; the page waits for it", "rack", name)
			}
			site := web.New(cfg)
			defer site.Close()
			if err := say(cmd, "%s", address); err != nil {
				return err
			}
			return web.Serve(cmd.Context(), l, site)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", defaultWeb, "address and port; port 0 is any free one")
	cmd.Flags().BoolVar(&control, "control", false, "let those who have the token change the rack")
	cmd.Flags().StringSliceVar(&hosts, "allow-host", nil, "name by which browsers may address this server, beside addresses and localhost (repeatable)")
	logFormatFlag(cmd, &logFormat)
	return cmd
}

// listenOn opens the port of a flag --listen. A port that is taken is a failure, anything else a mistake
// in the flag.
func listenOn(address string) (net.Listener, error) {
	l, err := web.Listen(address)
	var taken syscall.Errno
	if err != nil && !errors.As(err, &taken) {
		err = asUse(err)
	}
	return l, err
}

// Formats of logs.
const (
	logText = "text"
	logJSON = "json"
)

// logFormatFlag adds the flag --log-format to a command that logs.
func logFormatFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "log-format", logText, "format of the log on standard error: text or json, a record a line")
	complete(cmd, "log-format", logText, logJSON)
}

// newLog returns a logger that writes records in a format to out.
func newLog(out io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case logText:
		return slog.New(slog.NewTextHandler(out, nil)), nil
	case logJSON:
		return slog.New(slog.NewJSONHandler(out, nil)), nil
	}
	return nil, badUse("--log-format %.40q: %swant text or json", format, nearest.Meant(format, []string{logText, logJSON}))
}
