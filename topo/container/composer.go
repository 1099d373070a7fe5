package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ErrNoCompose means that compose is not installed on this machine.
var ErrNoCompose = errors.New("neither `docker compose` nor docker-compose is installed: install one of them (`rdmalab doctor` says how), or leave --compose out")

// Composer returns the command line of this machine's compose: the docker plugin if it is
// installed, otherwise the program docker-compose.
func Composer(ctx context.Context) ([]string, error) {
	if err := exec.CommandContext(ctx, "docker", "compose", "version").Run(); err == nil {
		return []string{"docker", "compose"}, nil
	}
	if _, err := exec.LookPath("docker-compose"); err == nil { // it is not run, because it takes a second to print its version
		return []string{"docker-compose"}, nil
	}
	return nil, ErrNoCompose
}

// compose makes and starts the containers of the rack's compose file. It is an error if afterwards
// no container has the rack's label.
func (h *Hosts) compose(ctx context.Context) error {
	c, err := Composer(ctx)
	if err != nil {
		return err
	}
	args := append(c[1:len(c):len(c)], "-f", h.s.Compose, "-p", DriverName(h.name), "up", "-d")
	cmd := exec.CommandContext(ctx, c[0], args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+h.s.Socket, "COMPOSE_IGNORE_ORPHANS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w; it says\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	e, err := h.Engine(ctx)
	if err != nil {
		return err
	}
	list, err := e.List(ctx, h.name)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s has made no container with the label %s=%s: is it the file of another rack? make one with `rdmalab compose`", h.s.Compose, LabelRack, h.name)
	}
	return err
}
